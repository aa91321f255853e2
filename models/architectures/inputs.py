"""Input matrices: plain, or stored by the parametrization like the others."""

from typing import Literal, TypeAlias

import torch

from models.linear import Affine, StructuredAffine
from models.parametrizations import Parametrization
from models.spec import Slot

InputLayer: TypeAlias = Affine | StructuredAffine
"""`[..., in]` -> `[..., gates*out]`."""

StructuredInputs = Literal["none", "square", "all"]
"""Which input matrices the parametrization stores too: none, those that are square, or all."""


def is_structured(slot: Slot, choice: StructuredInputs) -> bool:
    """Whether the parametrization stores an input matrix."""
    return choice == "all" or (choice == "square" and slot.in_features == slot.out_features)


def input_layer(
    slot: Slot,
    parametrization: Parametrization,
    choice: StructuredInputs,
    *,
    bias: bool = True,
    weight_norm: bool = False,
    generator: torch.Generator,
) -> InputLayer:
    """`[..., in]` -> `[..., gates*out]`; a plain matrix is Glorot-uniform, b = 0."""
    if is_structured(slot, choice):
        linear = parametrization.for_slot(slot).build(slot, generator=generator)
        return StructuredAffine(linear, bias=bias)
    return Affine(
        slot.in_features,
        slot.out_features,
        num_matrices=slot.gates,
        bias=bias,
        weight_norm=weight_norm,
        generator=generator,
    )
