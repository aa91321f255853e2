"""How a sequence is cut for a GPU, and whether it fits: a rule and a small table, no trials.

Note [What fits]
All weights of a model lie in the shared memory of the one multiprocessor that runs a program, in
tiles of powers of two, and beside them what a product exchanges between threads. Where that is more
than a block may have, the second thin factors are read at every step instead; where that is still
too much, or threads would run out of registers (see deploy/GPU_BENCHMARKS.md), the sequence is left
to other backends.
"""

from dataclasses import dataclass
from typing import Literal

Precision = Literal["ieee", "tf32x3", "tf32", "bf16"]
"""What factors of products are rounded to: nothing; three products of TF32 that make up for it;
TF32; bfloat16. Sums are in single precision, whatever it is."""

LEAST_INNER = 16
"""The least a product on a GPU sums over."""

SHARED_BYTES = {80: 166_912, 90: 232_448}
"""What a block may have of shared memory, by compute capability: A100, H100 and H200."""


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


@dataclass(frozen=True)
class Tiles:
    """How a kernel is compiled for a shape."""

    rows: int
    """Samples of a program"""
    units: int
    """n, filled up"""
    inner: int
    """d, filled up"""
    warps: int
    streamed: bool
    """Whether second factors are read at every step"""
    shared_bytes: int
    """An estimate from above"""


def tiles_for(weights: Weights, *, precision: Precision, shared_bytes: int) -> Tiles | None:
    """How to cut such a sequence, or None where it does not fit; see Note [What fits]."""
    units = max(_power_of_two(weights.size), LEAST_INNER)
    inner = max(_power_of_two(weights.rank), LEAST_INNER) if weights.rank else units
    rows = 4 if precision == "ieee" else 16
    each = 2 if precision == "bf16" else 4
    # States go from all threads to all threads, as do sums of parts.
    exchanged = 3 * rows * units * 4
    if weights.rank == 0:
        first, second = weights.gates * units * units * each, 0
    else:
        one = units * inner * each
        first = max(weights.gates, weights.rights) * one
        second = max(weights.gates, weights.rights) * one
        if weights.rights < weights.gates:
            # Forwards the first factor is shared, backwards the second one.
            second = one
    if units > 1024 or units * inner > 16384 * 2:
        return None
    warps = 4 if units <= 64 else 8
    for streamed in (False, True) if weights.rank else (False,):
        needed = first + exchanged + (0 if streamed else second)
        if needed <= shared_bytes:
            return Tiles(rows, units, inner, warps, streamed, needed)
    return None


def _power_of_two(number: int) -> int:
    return 1 << max(number - 1, 0).bit_length()
