"""Layers with dimensions of their own, in studies that compress a network layer by layer."""

from collections.abc import Mapping, Sequence

from models.parametrizations import AnyFamily, AnyParametrization, PerLayer
from models.spec import Slot
from search.spec import StudySpec


def layers_apart(spec: StudySpec) -> int:
    """How many layers have dimensions of their own; 0 where all that there are are drawn alike.

    Raises:
        OriginalUnresolved: nobody looked at the model that is compressed yet.
    """
    if spec.compress is None or spec.compress.layers == "shared":
        return 0
    slots = spec.compress.original.architecture.slots(spec.task.signature())
    layers = main_slot(slots).layers
    return layers if layers > 1 else 0


def main_slot(slots: Mapping[str, Slot]) -> Slot:
    """The slot that ranges follow; whatever else there is is cut to fit."""
    return next(iter(slots.values()))


def names_by_layer(kind: str, layers: int) -> list[str]:
    """What names a family's fields, before the last dot: its kind, or one name for each layer.

    `layers` is what `layers_apart` says.
    """
    return [f"{kind}.{layer}" for layer in range(layers)] or [kind]


def together(members: Sequence[AnyFamily], *, drawn: bool) -> AnyParametrization:
    """The parametrization of all layers: a single member, or one for each layer.

    Where nothing was drawn of any, they are alike, and the first one is that of all.
    """
    return PerLayer(layers=tuple(members)) if drawn and len(members) > 1 else members[0]


def named_members(parametrization: AnyParametrization) -> list[tuple[str, AnyFamily]]:
    """The members of families that make a parametrization up, by what names their fields."""
    if isinstance(parametrization, PerLayer):
        members = enumerate(parametrization.layers)
        return [(f"{member.kind}.{layer}", member) for layer, member in members]
    return [(parametrization.kind, parametrization)]
