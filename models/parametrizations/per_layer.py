"""A member of a family for each layer of a slot."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import ClassVar, Literal, Self, cast

import torch
from pydantic import Field
from torch import nn

from models.errors import SlotError
from models.forms import Form, joined
from models.linear import StructuredLinear
from models.parametrizations.families import AnyFamily
from models.parametrizations.parametrization import Family, Parametrization
from models.spec import Slot, kind_of


class PerLayer(Parametrization):
    """Layers that are stored each in its own way: in other counts, or by other families.

    The gates of a layer are alike. What is beside the main slot, such as an input matrix, is stored
    as its layer is.
    """

    title: ClassVar[str] = "Each layer its own"

    kind: Literal["per_layer"] = "per_layer"
    layers: tuple[AnyFamily, ...] = Field(
        min_length=1, description="a member of any family for each layer, the first layer first"
    )

    @property
    def families(self) -> Sequence[type[Family]]:
        """That of each layer."""
        return tuple(type(member) for member in self.layers)

    def check(self, slot: Slot) -> None:
        """There is a member for every layer, and it holds the layer."""
        for index, (member, layer) in enumerate(self._by_layer(slot)):
            with _naming(index, member):
                member.check(layer)

    def clamped(self, slot: Slot) -> Self:
        """Each member clamped to what a layer holds."""
        one = replace(slot, layers=1)
        return self.model_copy(
            update={"layers": tuple(member.clamped(one) for member in self.layers)}
        )

    def for_slot(self, slot: Slot) -> Parametrization:
        """This in a main slot, else what the slot's layer has.

        Raises:
            SlotError: there is no such layer.
        """
        if not slot.auxiliary:
            return self
        if slot.layer >= len(self.layers):
            raise SlotError(
                f"{len(self.layers)} members do not reach to layer {slot.layer}; allowed is one "
                "for each layer"
            )
        return self.layers[slot.layer].for_slot(slot)

    def parameter_count(self, slot: Slot) -> int:
        """The sum over the layers."""
        return sum(member.parameter_count(layer) for member, layer in self._by_layer(slot))

    def paper_count(self, slot: Slot) -> int:
        """The sum over the layers, each as its source counts."""
        return sum(member.paper_count(layer) for member, layer in self._by_layer(slot))

    def working_numbers(self, slot: Slot) -> int:
        """The sum over the layers."""
        return sum(member.working_numbers(layer) for member, layer in self._by_layer(slot))

    def kept_numbers(self, slot: Slot) -> int:
        """The sum over the layers."""
        return sum(member.kept_numbers(layer) for member, layer in self._by_layer(slot))

    def build(self, slot: Slot, *, generator: torch.Generator) -> "PerLayerLinear":
        """Each layer as its member starts it."""
        self.check(slot)
        layers = [member.build(one, generator=generator) for member, one in self._by_layer(slot)]
        return PerLayerLinear(slot, layers, families=self.families)

    def _by_layer(self, slot: Slot) -> list[tuple[Parametrization, Slot]]:
        """Each member with the slot of its layer alone."""
        if len(self.layers) != slot.layers:
            raise SlotError(
                f"{len(self.layers)} members do not fit {slot.layers} layers of {slot} matrices; "
                "allowed is one for each layer"
            )
        one = replace(slot, layers=1)
        return [(member, one) for member in self.layers]


class PerLayerLinear(StructuredLinear):
    """The matrices of all layers; `layers` store them, each its own."""

    def __init__(
        self, slot: Slot, layers: Sequence[StructuredLinear], *, families: Sequence[type[Family]]
    ) -> None:
        """`families` are those of the layers."""
        super().__init__(slot)
        self.layers = nn.ModuleList(layers)
        self.families = tuple(families)

    @property
    def members(self) -> Sequence[StructuredLinear]:
        """One for each layer."""
        return cast(Sequence[StructuredLinear], list(self.layers))

    def make_form(self) -> Form:
        """Those of the layers, as one where they have one form."""
        return joined([layer.form() for layer in self.members], gates=self.slot.gates)

    def degrees_of_freedom(self) -> int:
        """The sum over the layers."""
        return sum(layer.degrees_of_freedom() for layer in self.members)


@contextmanager
def _naming(layer: int, member: Parametrization) -> Generator[None]:
    """Say which layer it is that cannot be held."""
    try:
        yield
    except SlotError as error:
        raise SlotError(f"layer {layer}: {kind_of(type(member))}: {error}") from error
