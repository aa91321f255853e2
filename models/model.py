"""A model in full as a document, and what is done with the module that it builds."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, cast

import torch
from pydantic import Field
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
from models.quantization import Bits, Layout, layouts, round_
from models.spec import Signature, Spec, kind_of

NumberBits: TypeAlias = Literal[32, 8, 4]
"""Bits of a stored number; 32 is single precision."""

_FULL = 32


def _is_full(bits: int) -> bool:
    return bits == _FULL


class ModelSpec(Spec):
    """An architecture, the parametrization that stores its slots, and a task's signature.

    With fewer bits than 32 the numbers of its matrices are rounded, see `models.quantization`:
    integers times scales, which is what files hold. Parameters are of single precision even then.
    """

    architecture: AnyArchitecture
    parametrization: AnyParametrization
    signature: Signature
    # Documents of plain models are what they were before there were bits: who reads those reads
    # these.
    bits: NumberBits = Field(
        default=_FULL,
        exclude_if=_is_full,
        description="bits of the stored numbers of matrices, reflectors and embeddings; rotations' "
        "angles have twice as many. Biases, singular values, diagonals and first states keep 32",
    )

    @property
    def rounded_to(self) -> Bits | None:
        """The bits that numbers are rounded to; None where they are of single precision."""
        return None if self.bits == _FULL else self.bits

    @property
    def unrounded(self) -> "ModelSpec":
        """The same model with numbers of 32 bits, as it is while it is trained."""
        return self if self.rounded_to is None else self.model_copy(update={"bits": _FULL})

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

        One seed gives one set of numbers, whatever they are rounded to; without a seed they differ
        every time. torch's global generator is neither read nor moved.

        Raises:
            SpecError: see `check`.
        """
        network = self._initialised(seed)
        if self.rounded_to is not None:
            round_(network, self.rounded_to)
        return network

    def build_on_meta(self) -> nn.Module:
        """The model on torch's meta device: names and shapes of everything, and memory for nothing.

        Raises:
            SpecError: see `check`.
        """
        with torch.device("meta"):
            return self._initialised(0)

    def _initialised(self, seed: int | None) -> Network:
        self.check()
        generator = generator_of(seed)
        return self.architecture.build(self.signature, self.parametrization, generator=generator)

    def parameter_count(self) -> int:
        """Parameters that train, by closed formula: nothing is built."""
        return self.architecture.parameter_count(self.signature, self.parametrization)

    def paper_count(self) -> int:
        """The count by the papers' conventions, to compare with their tables."""
        return self.architecture.paper_count(self.signature, self.parametrization)

    def main_count(self) -> int:
        """Numbers of the recurrent or hidden matrices alone."""
        slot = next(iter(self.architecture.slots(self.signature).values()))
        return self.parametrization.for_slot(slot).parameter_count(slot)

    def dense_twin(self) -> "ModelSpec":
        """The same architecture and sizes with plain matrices of 32 bits."""
        return self.unrounded.model_copy(update={"parametrization": Dense()})

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every tensor of the model's state; no memory is taken for them.

        Raises:
            SpecError: see `check`.
        """
        tensors = self.build_on_meta().state_dict()
        return {name: tuple(tensor.shape) for name, tensor in sorted(tensors.items())}

    def layouts(self) -> dict[str, Layout]:
        """What each rounded tensor is stored as, by name; empty for 32 bits. Nothing is built.

        Raises:
            SpecError: see `check`.
        """
        return {} if self.rounded_to is None else layouts(self.build_on_meta(), self.rounded_to)

    def shape_key(self) -> str:
        """A digest (hex) that models share when they run at the same speed.

        It follows from the architecture, the signature, the parametrization's kind and options, the
        shapes of all tensors and their bits, and not from numbers that only change values. Here
        bits change no speed; where files are run they may.
        """
        shape = {
            **({} if self.rounded_to is None else {"bits": self.bits}),
            "architecture": self.architecture.model_dump(mode="json"),
            "signature": self.signature.model_dump(mode="json"),
            "parametrization": _words(self.parametrization.model_dump(mode="json")),
            "tensors": self.tensor_shapes(),
        }
        return hashlib.sha256(json.dumps(shape, sort_keys=True).encode()).hexdigest()


def shape_words(model: Mapping[str, Any]) -> str:
    """What models share that have the same tensors and bits: not the parametrization's reals.

    `ModelSpec.shape_key` says it exactly, and takes too long for hundreds of candidates.

    Args:
        model: the document of a `ModelSpec`.
    """
    words = [
        model["architecture"],
        _without_reals(model["parametrization"]),
        model.get("bits", _FULL),
    ]
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

    Each group has `params` and `lr`, as torch's optimizers take them, and `scale`: parametrizations
    may ask for a multiple of the learning rate for some of their parameters
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
        {"params": parameters, "lr": learning_rate * scale, "scale": scale}
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
    """`max |sigma_i - sigma*|` over all singular values of the structured weights.

    sigma* is each one's own, see `StructuredLinear.sigma_star`.

    Where a parametrization does not know them they are computed, which is done for matrices of a
    shorter side of at most 256 alone: once an epoch it then costs milliseconds. None where there
    is no such matrix.
    """
    found = spectral_distance(module)
    return None if found is None else float(found)


def spectral_distance(module: nn.Module) -> Tensor | None:
    """The same as a scalar."""
    distances = [
        (values.abs() - part.sigma_star).abs().max().double()
        for part in stored_matrices(module)
        if (values := spectrum_of(part)) is not None
    ]
    return torch.stack(distances).max() if distances else None


def spectrum_of(linear: StructuredLinear) -> Tensor | None:
    """Singular values, known or computed; None where that would take long."""
    known = linear.singular_values()
    if known is not None or min(linear.in_features, linear.out_features) > LARGEST_DECOMPOSED:
        return known
    return singular_values(raised(linear.dense_weight()))
