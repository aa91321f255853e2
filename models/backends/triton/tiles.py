"""How a sequence is cut for a GPU, and whether it fits: a rule and a small table, no trials.

Note [What fits]
Whole matrices of a model lie in the shared memory of the one multiprocessor that runs a program, in
tiles of powers of two, and beside them what a product exchanges between threads. Thin factors lie
in registers, of which a program has 65,536: as many numbers as `MOST_NUMBERS` leave room for the
rest. More of them are divided among several programs. What does not fit so either is left to other
backends. Measured figures stand in deploy/docs/benchmarks/gpu.md.
"""

from dataclasses import dataclass
from typing import Literal

Precision = Literal["ieee", "tf32x3", "tf32", "bf16"]
"""What factors of whole matrices' products are rounded to: nothing; three products of TF32 that
make up for it; TF32; bfloat16. Sums are in single precision, whatever it is."""

LEAST_INNER = 16
"""The least a product on a GPU sums over."""

MOST_OF_A_MATRIX = 32_768
"""Numbers of one matrix, filled up: more of them and threads run out of registers."""

SHARED_BYTES = {80: 166_912, 90: 232_448}
"""What a block may have of shared memory, by compute capability: A100, H100 and H200."""

MOST_NUMBERS: dict[int, int] = {2: 8_192, 4: 16_384, 8: 32_768}
"""Numbers of thin factors, filled up, that a program of so many warps holds."""
MOST_UNDIVIDED = 16, 49_152
"""Warps and numbers of a program that cannot share its samples; its threads spill some."""

WARPS = 8
"""Of all programs of a multiprocessor together: with them a thread may have all the registers that
an instruction can name."""
MOST_OF_A_PART, PART_WARPS, MOST_PARTS = 8_192, 2, 64
"""Numbers and warps of a program that shares its samples, and how many may do so."""
LEAST_UNITS = 16
"""Of a program."""
LEAST_RANK = 4
"""A thread reads four numbers at once."""


@dataclass(frozen=True)
class Weights:
    """What a model's matrices are."""

    gates: int
    size: int
    """n"""
    rank: int = 0
    """d; 0 of whole matrices"""
    rights: int = 0
    """Right factors: one for each gate, or 1 that all share"""
    divides: bool = True
    """Whether programs may share a sample: not of a cell that has to meet twice in a step"""


@dataclass(frozen=True)
class WholeTiles:
    """How a kernel of whole matrices is compiled for a shape."""

    rows: int
    """Samples of a program"""
    units: int
    """n, filled up"""
    warps: int
    shared_bytes: int
    """An estimate from above"""


@dataclass(frozen=True)
class ThinTiles:
    """How a kernel of thin matrices is compiled for a shape."""

    units: int
    """Of a program"""
    inner: int
    """d, filled up"""
    parts: int
    """Programs that share a sample"""
    warps: int

    @property
    def fetches_ahead(self) -> bool:
        """Whether there are registers for what the next step of a backward pass reads."""
        return self.parts == 1 and self.warps <= WARPS


Tiles = WholeTiles | ThinTiles


def tiles_for(weights: Weights, *, precision: Precision, shared_bytes: int) -> Tiles | None:
    """How to cut such a sequence, or None where it does not fit; see Note [What fits]."""
    if weights.rank:
        return _thin(weights)
    return _whole(weights, precision, shared_bytes)


def _whole(weights: Weights, precision: Precision, shared_bytes: int) -> WholeTiles | None:
    units = max(_power_of_two(weights.size), LEAST_INNER)
    if units * units > MOST_OF_A_MATRIX:
        return None
    # Without tensor cores a step costs as much for each sample, and few of them are soonest done.
    rows = 16 if precision != "ieee" else 2
    one = units * units * (2 if precision == "bf16" else 4)
    # What threads exchange: the state and the gates' gradients.
    needed = (weights.gates + 1) * rows * units * 4 + one * weights.gates
    if precision == "tf32x3":
        # Each matrix is kept in three parts.
        needed += 2 * one * weights.gates
    if needed > shared_bytes:
        return None
    return WholeTiles(rows, units, 4 if units <= 64 else 8, needed)


def _thin(weights: Weights) -> ThinTiles | None:
    units = max(_power_of_two(weights.size), LEAST_UNITS)
    inner = max(_power_of_two(weights.rank), LEAST_RANK)
    numbers = (weights.gates + weights.rights) * units * inner
    for warps, most in MOST_NUMBERS.items():
        if numbers <= most:
            return ThinTiles(units, inner, 1, warps)
    if not weights.divides:
        warps, most = MOST_UNDIVIDED
        return ThinTiles(units, inner, 1, warps) if numbers <= most else None
    parts = _power_of_two(-(-numbers // MOST_OF_A_PART))
    if parts > MOST_PARTS or units // parts < LEAST_UNITS:
        return None
    return ThinTiles(units // parts, inner, parts, PART_WARPS)


def _power_of_two(number: int) -> int:
    return 1 << max(number - 1, 0).bit_length()
