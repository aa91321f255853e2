"""Which configurations fit into how many bytes; known from shapes, before anything is trained."""

import itertools
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import onnx

from models.errors import SpecError
from models.exports.onnx.choice import forms_of
from models.exports.onnx.export import FileOptions, export
from models.model import ModelSpec
from models.network import Network
from models.parametrizations import Dense
from tests.benchmarks.file_peers.setups import ORIGINAL_WIDTH, Setup
from tests.benchmarks.peers import ours

KILOBYTE = 1024
BITS = (32, 8, 4)
DENSE = "dense"
WIDTHS = (8, 12, 16, 24, 32, 48, 64, 96, ORIGINAL_WIDTH)
"""Of structured networks; dense ones take any."""
WIDTHS_TRIED = 2
_INPUTS_TOO = ", inputs too"


@dataclass(frozen=True)
class Family:
    """One way to store matrices, with a count that is set as high as the bytes allow."""

    member: ours.Member
    inputs: bool = False
    """Whether the input matrices are stored like that, too."""
    most: int = ORIGINAL_WIDTH
    """The largest count that is tried: reflectors and rotations take time one by one."""


FAMILIES: Mapping[str, Family] = {
    **{name: Family(ours.FAMILIES[name]) for name in ("low_rank", "low_rank, tied")},
    **{
        name + _INPUTS_TOO: Family(ours.FAMILIES[name], inputs=True)
        for name in ("low_rank", "low_rank, tied")
    },
    "low_rank_diagonal": Family(ours.FAMILIES["low_rank_diagonal"]),
    **{
        name: Family(ours.FAMILIES[name], most=24)
        for name in ("householder_svd", "packed_rotations", "rotation_svd")
    },
}


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A GRU in full."""

    family: str
    bits: int
    width: int
    count: int = 0
    """Rank, reflectors or rotation stages on each side; 0 for plain matrices."""

    @property
    def is_dense(self) -> bool:
        """Whether its matrices are plain."""
        return self.family == DENSE

    @property
    def camp(self) -> str:
        """What it stands for in the tables."""
        precision = "fp32" if self.bits == BITS[0] else f"int{self.bits}"
        return f"{self.family} {precision}"

    def spec(self, setup: Setup) -> ModelSpec:
        """Its document."""
        if self.is_dense:
            return setup.gru(self.width, Dense(), bits=self.bits)
        family = FAMILIES[self.family]
        return setup.gru(
            self.width, family.member(self.count), bits=self.bits, inputs=family.inputs
        )


def bare(content: bytes) -> bytes:
    """An ONNX file without its metadata, which describe the model and compute nothing."""
    model = onnx.load_from_string(content)
    del model.metadata_props[:]
    return model.SerializeToString(deterministic=True)


def smallest_file(network: Network, spec: ModelSpec) -> bytes:
    """The bare file of the form in which that is smallest."""
    files = (export(network, spec, FileOptions(form=form)) for form in forms_of(network))
    return min(map(bare, files), key=len)


@cache
def file_bytes(setup: Setup, candidate: Candidate) -> int | None:
    """The size of the trained model's file; None where there is no such model."""
    spec = candidate.spec(setup)
    try:
        return len(smallest_file(spec.build(seed=0), spec))
    except SpecError:
        return None


def largest(most: int, fits: Callable[[int], bool]) -> int | None:
    """The largest of 1..most that fits, where all below one that fits do; None where 1 does not."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low or None


def dense_candidates(setup: Setup, limit: int) -> Iterator[Candidate]:
    """For each number of bits the widest network whose file has at most so many bytes."""
    for bits in BITS:
        one = Candidate(family=DENSE, bits=bits, width=0)
        yield from _largest_member(setup, one, "width", ORIGINAL_WIDTH, limit)


def structured_candidates(
    setup: Setup, limit: int, *, among: Container[tuple[str, int]] | None = None
) -> Iterator[Candidate]:
    """For each family, number of bits and some widths the largest count that fits.

    The widths are the narrowest two in which plain matrices of these bits do not fit, then the
    widest ones in which they do; a file is always smaller than that with plain matrices. `among`
    has the families and bits that count; None: all.
    """
    for family, bits in itertools.product(FAMILIES, BITS):
        if among is None or (family, bits) in among:
            found = (
                member
                for width in _in_order(setup, bits, limit)
                for member in _of_width(setup, family, bits, width, limit)
            )
            yield from itertools.islice(found, WIDTHS_TRIED)


def _of_width(setup: Setup, family: str, bits: int, width: int, limit: int) -> Iterator[Candidate]:
    """The one with the largest count that fits and is smaller than plain matrices, or none."""
    plain = file_bytes(setup, Candidate(family=DENSE, bits=bits, width=width))
    assert plain is not None
    one = Candidate(family=family, bits=bits, width=width)
    most = min(FAMILIES[family].most, width)
    yield from _largest_member(setup, one, "count", most, min(limit, plain - 1))


def _largest_member(
    setup: Setup, one: Candidate, field: Literal["width", "count"], most: int, limit: int
) -> Iterator[Candidate]:
    found = largest(most, lambda n: _fits(setup, replace(one, **{field: n}), limit))
    if found is not None:
        yield replace(one, **{field: found})


def _in_order(setup: Setup, bits: int, limit: int) -> list[int]:
    """Widths from the narrowest in which plain matrices do not fit, then down from that."""

    def holds(width: int) -> bool:
        return _fits(setup, Candidate(family=DENSE, bits=bits, width=width), limit)

    wide = [width for width in WIDTHS if not holds(width)]
    return wide + sorted(set(WIDTHS) - set(wide), reverse=True)


def _fits(setup: Setup, candidate: Candidate, limit: int) -> bool:
    size = file_bytes(setup, candidate)
    return size is not None and size <= limit
