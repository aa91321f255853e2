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

MOST_OF_A_FACTOR = 32_768
"""Numbers of one factor, filled up: more of them and threads run out of registers."""

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
    if units * inner > MOST_OF_A_FACTOR:
        return None
    one = units * inner * (2 if precision == "bf16" else 4)
    # With TF32 what is read anew takes more registers than threads have.
    may_stream = weights.rank > 0 and precision in ("ieee", "bf16")
    for streamed in (False, True) if may_stream else (False,):
        rows = _rows(weights, precision, streamed=streamed)
        # What threads exchange: the state, the gates' gradients, a factor that is read anew.
        needed = (weights.gates + 1) * rows * units * 4 + (one if streamed else 0)
        needed += one * _factors(weights, streamed=streamed)
        if needed <= shared_bytes:
            warps = 4 if units <= 64 else 8
            return Tiles(rows, units, inner, warps, streamed, needed)
    return None


def _rows(weights: Weights, precision: Precision, *, streamed: bool) -> int:
    """Samples of a program: what tensor cores take, or as many as registers leave room for.

    Without tensor cores a step costs as much for each sample, and few of them are soonest done.
    """
    if precision != "ieee":
        return 16
    large = weights.gates == 4 or weights.rank == 0 or weights.size > 256
    return 2 if streamed or (weights.gates > 1 and large) else 4


def _factors(weights: Weights, *, streamed: bool) -> int:
    """Tiles of weights that stay on chip, in the pass that has more of them."""
    if streamed or weights.rank == 0:
        return weights.gates
    return weights.gates + weights.rights


def _power_of_two(number: int) -> int:
    return 1 << max(number - 1, 0).bit_length()
