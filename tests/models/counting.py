"""Models of given sizes, and how many numbers they train."""

from models.architectures import AnyArchitecture
from models.model import ModelSpec
from models.parametrizations import AnyParametrization
from models.spec import Signature


def spec_of(
    architecture: AnyArchitecture, parametrization: AnyParametrization, sizes: tuple[int, int, int]
) -> ModelSpec:
    inputs, steps, outputs = sizes
    return ModelSpec(
        architecture=architecture,
        parametrization=parametrization,
        signature=Signature(input_size=inputs, sequence_length=steps, output_size=outputs),
    )


def trainable(spec: ModelSpec) -> int:
    return sum(p.numel() for p in spec.build_on_meta().parameters() if p.requires_grad)
