"""Whether measured values bear a paper's claim out: pure functions of numbers."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from search.documents.papers import Claim, PrintedValue, RowEntry, Verdict, VerdictKind
from search.student import half_width

FEWEST_SEEDS: Final = 3
"""With fewer, a mean says too little."""

SETTLING_SEEDS: Final = 5
"""With fewer, an interval is too wide to make up for a mean that falls short, and seeds that do not
agree settle nothing."""

_ROUNDING: Final = 1e-9
"""Of a printed value: no further is a mean of equal numbers from them."""

_SIGNS: Mapping[str, int] = {"maximize": 1, "minimize": -1}


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What one seed came to."""

    seed: int
    value: float | None
    """On test data, by the claim's metric; null where the training failed, or has not ended."""
    updates: int
    reason: str | None = None
    """Why it failed."""
    unfinished: bool = False
    """Whether the training has not ended."""
    best_validation: float | None = None
    """Of what has not ended: its best value on validation data; null where nothing is known."""


@dataclass(frozen=True)
class _Seeds:
    values: Sequence[float]
    failed: Sequence[Measured]
    early: Sequence[Measured]
    """Those that reach what is claimed before they end."""
    undecided: int = 0
    """Those that do not reach it yet, and have updates left in which they may."""

    @property
    def count(self) -> int:
        return len(self.values) + len(self.failed) + len(self.early)

    @property
    def mean(self) -> float | None:
        return statistics.fmean(self.values) if self.values else None

    @property
    def half_width(self) -> float | None:
        return half_width(self.values) if self.values else None


def judge(row: RowEntry, measured: Sequence[Measured]) -> Verdict:
    """The verdict on a row, by the seeds that were trained of it.

    Of a training that has not ended nothing is known but that it reaches what is claimed, once it
    does so on validation data: no later update can undo that.

    Args:
        row: the row, with its claim.
        measured: one for each seed.
    """
    ended = [one for one in measured if not one.unfinished]
    early = [one for one in measured if is_decided(row.claim, one.best_validation)]
    undecided = [one for one in ended if _may_reach_yet(row.claim, one)]
    seeds = _Seeds(
        values=[one.value for one in ended if one.value is not None and one not in undecided],
        failed=[one for one in ended if one.value is None],
        early=early,
        undecided=len(undecided) + len(measured) - len(ended) - len(early),
    )
    kind, why = _kind(row, ended, seeds)
    mean = seeds.mean
    return Verdict(
        kind=kind,
        why=why,
        seeds=seeds.count,
        mean=mean,
        half_width=seeds.half_width,
        difference=None if mean is None or row.claim is None else mean - row.claim.value,
    )


def tolerance(row: RowEntry, half: float | None) -> float:
    """How far a mean may be from a printed value: its interval, or the printed share's error."""
    return max(half or 0.0, _share_error(row))


def _share_error(row: RowEntry) -> float:
    """The standard error of a printed accuracy, `sqrt(p (1 - p) / N)`; 0 of what is no share."""
    claim, samples = row.claim, row.test_samples
    if claim is None or samples is None or claim.metric != "accuracy":
        return 0.0
    return math.sqrt(claim.value * (1 - claim.value) / samples)


def _kind(
    row: RowEntry, ended: Sequence[Measured], seeds: _Seeds
) -> tuple[VerdictKind, str | None]:
    if row.unreachable is not None:
        return "cannot be", row.unreachable
    if row.claim is None:
        return "cannot be", "nothing is printed that could be compared"
    short = sum(not _is_long_enough(row.claim, one) for one in ended)
    too_few = sum(_may_reach_yet(row.claim, one) for one in ended)
    enough = seeds.count - (short - too_few)
    if enough < FEWEST_SEEDS:
        missing = f"{enough} of {FEWEST_SEEDS} seeds"
        return "not yet", missing + (f", {short} with too few updates" if short else "")
    return _RULES[row.claim.kind](row, row.claim, seeds)


def _is_long_enough(claim: Claim, one: Measured) -> bool:
    return isinstance(claim, PrintedValue) or one.value is None or one.updates >= claim.updates


def _may_reach_yet(claim: Claim | None, one: Measured) -> bool:
    """Whether a training ended before it reached what it may need more updates for."""
    if claim is None or one.value is None or _is_long_enough(claim, one):
        return False
    return not _is_reached(claim, one.value)


def is_decided(claim: Claim | None, best_validation: float | None) -> bool:
    """Whether a training that has not ended shows that what is claimed is reached.

    A printed value is one of the end: it is not claimed to be reached by some update.
    """
    if claim is None or best_validation is None or isinstance(claim, PrintedValue):
        return False
    return _is_reached(claim, best_validation)


def _is_reached(claim: Claim, value: float) -> bool:
    return _SIGNS[claim.direction] * (value - claim.value) >= 0


def _failures(seeds: _Seeds) -> str:
    return "; ".join(f"seed {one.seed}: {one.reason or 'failed'}" for one in seeds.failed)


def _by_value(row: RowEntry, claim: Claim, seeds: _Seeds) -> tuple[VerdictKind, str | None]:
    mean = seeds.mean
    if seeds.failed or mean is None:
        return "not reproduced", _failures(seeds)
    ahead = _SIGNS[claim.direction] * (mean - claim.value)
    rounding = _ROUNDING * abs(claim.value)
    near = tolerance(row, seeds.half_width) + rounding
    if ahead > near:
        return "better", None
    if ahead < -near:
        return "not reproduced", None
    if ahead < -_share_error(row) - rounding and len(seeds.values) < SETTLING_SEEDS:
        return "not yet", (
            f"{len(seeds.values)} of {SETTLING_SEEDS} seeds: within their interval alone"
        )
    return "reproduced", None


def _by_reaching(_row: RowEntry, claim: Claim, seeds: _Seeds) -> tuple[VerdictKind, str | None]:
    return _by_most(claim, seeds, lambda reach, count: 2 * reach > count)


def _by_failing(_row: RowEntry, claim: Claim, seeds: _Seeds) -> tuple[VerdictKind, str | None]:
    return _by_most(claim, seeds, lambda reach, count: 2 * reach < count)


def _by_most(
    claim: Claim, seeds: _Seeds, holds: Callable[[int, int], bool]
) -> tuple[VerdictKind, str | None]:
    """Most seeds decide: those that failed have no value, so that a mean would leave them out.

    Seeds that are undecided yet must not be able to turn it.
    """
    reach = _reaching(claim, seeds)
    agree = reach in (0, seeds.count)
    split = f"{reach} of {seeds.count} seeds reach it"
    if seeds.early:
        split += f", {len(seeds.early)} before the end"
    if not agree and seeds.count < SETTLING_SEEDS:
        return "not yet", f"{split}; {SETTLING_SEEDS} settle it"
    every = seeds.count + seeds.undecided
    verdict = holds(reach, every)
    if verdict != holds(reach + seeds.undecided, every):
        return "not yet", f"{split}; {seeds.undecided} that have updates left may decide otherwise"
    is_plain = agree and not seeds.early
    why = "; ".join(filter(None, ["" if is_plain else split, _failures(seeds)]))
    return ("reproduced" if verdict else "not reproduced"), why or None


def _reaching(claim: Claim, seeds: _Seeds) -> int:
    return len(seeds.early) + sum(_is_reached(claim, value) for value in seeds.values)


_RULES: Mapping[str, Callable[[RowEntry, Claim, _Seeds], tuple[VerdictKind, str | None]]] = {
    "value": _by_value,
    "reaches": _by_reaching,
    "fails": _by_failing,
}
"""By the kind of claim."""
