"""This project's conversions, each with the largest counts that the numbers allow."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from models.compression import convert, from_torch
from models.errors import SlotError
from models.parametrizations import (
    Householder,
    HouseholderSvd,
    LowRank,
    LowRankDiagonal,
    PackedRotations,
    Parametrization,
    RotationSvd,
)
from models.spec import Slot
from tests.benchmarks.peers.contestant import Contestant, Given

CALIBRATION = 256

Member = Callable[[int], Parametrization]

FAMILIES: Mapping[str, Member] = {
    "low_rank": lambda count: LowRank(d=count),
    "low_rank, tied": lambda count: LowRank(d=count, tied=True),
    "low_rank_diagonal": lambda count: LowRankDiagonal(d=count),
    "low_rank_diagonal, tied": lambda count: LowRankDiagonal(d=count, tied=True),
    "householder_svd": lambda count: HouseholderSvd(m1=count, m2=count, bound="free"),
    "householder": lambda count: Householder(m=count),
    "packed_rotations": lambda count: PackedRotations(count=count),
    "rotation_svd": lambda count: RotationSvd(count_u=count, count_v=count),
}


def compressed(given: Given, member: Member) -> Contestant | None:
    """The conversion, or None where even the smallest member has more numbers than allowed."""
    network, spec = from_torch(given.original.state_dict(), sequence_length=given.train.x.shape[1])
    slot = next(iter(spec.architecture.slots(spec.signature).values()))
    fitting = list(_fitting(member, slot, given.numbers))
    if not fitting:
        return None
    parametrization = fitting[-1]
    target = spec.model_copy(update={"parametrization": parametrization})
    module, _ = convert(network, target, calibration=given.train.x[:CALIBRATION])
    matrices = target.main_count()
    counts = parametrization.model_dump(exclude_defaults=True, exclude={"kind", "bound", "tied"})
    return Contestant(
        module=module,
        numbers=lambda: matrices,
        others=target.parameter_count() - matrices,
        what=", ".join(f"{name} {value}" for name, value in counts.items()),
    )


def _fitting(member: Member, slot: Slot, numbers: int) -> Iterator[Parametrization]:
    """Members with rising counts, as long as they fit."""
    for count in range(1, slot.smaller_side + 1):
        parametrization = member(count)
        try:
            parametrization.check(slot)
        except SlotError:
            return
        if parametrization.parameter_count(slot) > numbers:
            return
        yield parametrization


CONTESTANTS = {
    f"ours: {name}": partial(compressed, member=family) for name, family in FAMILIES.items()
}
