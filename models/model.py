"""A model in full as a document, and what is done with the module that it builds."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from models.architectures import AnyArchitecture
from models.errors import SlotError
from models.hooks import Projected
from models.linear import StructuredLinear, stored_matrices
from models.math.initialisation import generator_of
from models.math.linalg import singular_values
from models.math.precision import raised
from models.network import Network
from models.parametrizations import AnyParametrization, Dense
from models.spec import Signature, Spec, kind_of


class ModelSpec(Spec):
    """An architecture, the parametrization that stores its slots, and a task's signature."""

    architecture: AnyArchitecture
    parametrization: AnyParametrization
    signature: Signature

    def check(self) -> None:
        """Refuse a combination that cannot be built.

        Raises:
            SignatureError: the architecture cannot answer what the task asks.
            SlotError: names the slot, the value and what is allowed.
        """
        self.architecture.check(self.signature)
        for name, slot in self.architecture.slots(self.signature).items():
            try:
                self.parametrization.for_slot(slot).check(slot)
            except SlotError as error:
                where = f"{self.architecture.kind}.{name}: {kind_of(type(self.parametrization))}"
                raise SlotError(f"{where}: {error}") from error

    def build(self, *, seed: int | None = None) -> Network:
        """A freshly initialised model on the CPU; shapes are those of the signature.

        One seed gives one set of numbers; without a seed they differ every time. torch's global
        generator is neither read nor moved.

        Raises:
            SpecError: see `check`.
        """
        self.check()
        generator = generator_of(seed)
        return self.architecture.build(self.signature, self.parametrization, generator=generator)

    def build_on_meta(self) -> nn.Module:
        """The model on torch's meta device: names and shapes of everything, and memory for nothing.

        Raises:
            SpecError: see `check`.
        """
        with torch.device("meta"):
            return self.build(seed=0)

    def parameter_count(self) -> int:
        """Trainable numbers, by closed formula: nothing is built."""
        return self.architecture.parameter_count(self.signature, self.parametrization)

    def paper_count(self) -> int:
        """The count by the papers' conventions, to compare with their tables."""
        return self.architecture.paper_count(self.signature, self.parametrization)

    def main_count(self) -> int:
        """Numbers of the recurrent or hidden matrices alone."""
        slot = next(iter(self.architecture.slots(self.signature).values()))
        return self.parametrization.for_slot(slot).parameter_count(slot)

    def dense_twin(self) -> "ModelSpec":
        """The same architecture and sizes with plain matrices."""
        return self.model_copy(update={"parametrization": Dense()})

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every tensor that a checkpoint holds; no memory is taken for them.

        Raises:
            SpecError: see `check`.
        """
        tensors = self.build_on_meta().state_dict()
        return {name: tuple(tensor.shape) for name, tensor in sorted(tensors.items())}

    def shape_key(self) -> str:
        """A digest (hex) that models share when they run at the same speed.

        It follows from the architecture, the signature, the parametrization's kind and options, and
        the shapes of all tensors, and not from numbers that only change values.
        """
        shape = {
            "architecture": self.architecture.model_dump(mode="json"),
            "signature": self.signature.model_dump(mode="json"),
            "parametrization": _words(self.parametrization.model_dump(mode="json")),
            "tensors": self.tensor_shapes(),
        }
        return hashlib.sha256(json.dumps(shape, sort_keys=True).encode()).hexdigest()


def shape_words(model: Mapping[str, Any]) -> str:
    """What models share that have the same tensors: all but the reals of the parametrization.

    `ModelSpec.shape_key` says it exactly, and takes too long for hundreds of candidates.

    Args:
        model: the document of a `ModelSpec`.
    """
    words = [model["architecture"], _without_reals(model["parametrization"])]
    return json.dumps(words, sort_keys=True)


def _without_reals(document: Any) -> Any:
    """A document without its real numbers, those of its layers included."""
    if isinstance(document, list):
        return [_without_reals(one) for one in cast(list[Any], document)]
    if not isinstance(document, dict):
        return document
    fields = cast(dict[str, Any], document)
    return {n: _without_reals(value) for n, value in fields.items() if not isinstance(value, float)}


def _words(document: dict[str, Any]) -> dict[str, Any]:
    """What a document says in words, and so do the documents in its lists."""
    words: dict[str, Any] = {n: value for n, value in document.items() if isinstance(value, str)}
    for name, value in document.items():
        if isinstance(value, list):
            words[name] = [_words(one) for one in cast(list[dict[str, Any]], value)]
    return words


def parameter_groups(module: nn.Module, learning_rate: float) -> list[dict[str, Any]]:
    """All trainable parameters, grouped by learning rate, for an optimizer; plain ones first.

    Each group has `params` and `lr`, as torch's optimizers take them.
    Parametrizations may ask for a multiple of the learning rate for some of their parameters
    (`StructuredLinear.learning_rate_scales`).
    """
    scales = {
        part.get_parameter(name): scale
        for part in stored_matrices(module)
        for name, scale in part.learning_rate_scales().items()
    }
    by_scale: dict[float, list[nn.Parameter]] = {1.0: []}
    for parameter in module.parameters():
        if parameter.requires_grad:
            by_scale.setdefault(scales.get(parameter, 1.0), []).append(parameter)
    return [
        {"params": parameters, "lr": learning_rate * scale}
        for scale, parameters in by_scale.items()
        if parameters
    ]


def after_step(module: nn.Module) -> None:
    """Bring parameters back to where they belong, after an optimizer step."""
    for part in module.modules():
        if isinstance(part, Projected):
            part.project_()


def penalty(module: nn.Module) -> Tensor | None:
    """What the structured weights add to the training loss, a scalar; None where none asks."""
    parts = [part for linear in stored_matrices(module) if (part := linear.penalty()) is not None]
    return torch.stack(parts).sum() if parts else None


LARGEST_DECOMPOSED = 256


@torch.no_grad()
def spectral_margin(module: nn.Module) -> float | None:
    """`max |sigma_i - 1|` over all singular values of the structured weights.

    Where a parametrization does not know them they are computed, which is done for matrices of a
    shorter side of at most 256 alone: once an epoch it then costs milliseconds. None where there
    is no such matrix.
    """
    spectra = [
        values.abs() for part in stored_matrices(module) if (values := _spectrum(part)) is not None
    ]
    return max((float((values - 1).abs().max()) for values in spectra), default=None)


def _spectrum(linear: StructuredLinear) -> Tensor | None:
    known = linear.singular_values()
    if known is not None or min(linear.in_features, linear.out_features) > LARGEST_DECOMPOSED:
        return known
    return singular_values(raised(linear.dense_weight()))
