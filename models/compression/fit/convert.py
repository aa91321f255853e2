"""The member of a parametrization that is nearest to given matrices."""

import copy
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from models.compression.fit import FAMILY_FITS, FITS
from models.compression.target import Target
from models.errors import ConversionError, SlotError
from models.linear import StructuredLinear
from models.math.initialisation import generator_of
from models.parametrizations import Parametrization
from models.spec import Slot, kind_of


def refuse_unconvertible(*families: type[Parametrization]) -> None:
    """Refuse families to which plain matrices are not converted.

    Raises:
        ConversionError: names the first one, why, and those that have a conversion.
    """
    for family in families:
        if family not in FAMILY_FITS:
            allowed = ", ".join(sorted(kind_of(variant) for variant in FAMILY_FITS))
            why = getattr(family, "no_fit", None) or "nobody has written one"
            raise ConversionError(
                f"no conversion is implemented for {kind_of(family)}: {why}; allowed are {allowed}"
            )


def convert_weight(
    weight: Tensor,
    parametrization: Parametrization,
    *,
    slot: Slot | None = None,
    moments: Tensor | None = None,
    earlier: StructuredLinear | None = None,
    name: str = "the weight",
) -> StructuredLinear:
    """The member of a family that is nearest to given matrices, as far as its algorithm finds it.

    Args:
        weight: `[out, in]`, or `[G, out, in]` for the G matrices of a slot; of any floating type.
        parametrization: the family, with its counts.
        slot: how the matrices belong together; without one each stands for itself, as a layer.
        moments: `E[x x^T]` `[G, in, in]` of what the matrices read. Families with a closed form for
            it (low_rank, low_rank_diagonal) then keep outputs rather than weights.
        earlier: what this function gave for smaller counts, which the result does not fall behind.
        name: what messages call the matrices.

    Returns:
        A module in double precision on the CPU. Equal arguments give equal numbers.

    Raises:
        ConversionError: the matrices are not finite, or the family has no conversion.
        SlotError: the family cannot hold matrices of this size.
    """
    refuse_unconvertible(*parametrization.families)
    matrices = weight.detach().to("cpu", torch.float64)
    matrices = matrices if matrices.dim() == 3 else matrices.unsqueeze(0)
    if slot is None:
        num_matrices, rows, columns = matrices.shape
        slot = Slot(out_features=rows, in_features=columns, layers=num_matrices)
    parts = 2 if slot.field == "complex" else 1
    real = (
        slot
        if parts == 1
        else Slot(
            out_features=parts * slot.out_features,
            in_features=parts * slot.in_features,
            gates=slot.gates,
            layers=slot.layers,
        )
    )
    try:
        linear = parametrization.build(slot, generator=generator_of(0)).double()
    except SlotError as error:
        raise SlotError(f"{name}: {kind_of(type(parametrization))}: {error}") from error
    if earlier is not None:
        # A module is moved in place, and this one is the caller's.
        earlier = copy.deepcopy(earlier).to("cpu", torch.float64)
    target = Target(
        slot=real,
        weight=matrices,
        moments=None if moments is None else moments.detach().to("cpu", torch.float64),
        earlier=earlier,
    )
    target.check(name)
    with torch.no_grad():
        FITS[type(parametrization)](linear, target)
    return linear


def convert_path(
    weight: Tensor,
    parametrizations: Iterable[Parametrization],
    *,
    slot: Slot | None = None,
    moments: Tensor | None = None,
    name: str = "the weight",
) -> Iterator[StructuredLinear]:
    """Convert to one member after the other, each of which starts from the one before as well.

    For members of one family whose counts rise errors never rise: of weights, or with moments of
    outputs where the family keeps these. See `convert_weight` for the arguments and the errors.
    """
    earlier = None
    for parametrization in parametrizations:
        earlier = convert_weight(
            weight, parametrization, slot=slot, moments=moments, earlier=earlier, name=name
        )
        yield earlier
