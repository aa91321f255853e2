"""One network on one split: the two searches, how they are predicted, and other tools' files."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from search.graphs.evaluator import Evaluator, handed_out, probed_offers
from search.graphs.front import Proposals
from search.graphs.picks import LayerOffers, Measured, Picks, front_of
from tests.benchmarks.networks.beside import Beside, Quality, beside_others, quality
from tests.benchmarks.networks.case import Case
from tests.benchmarks.networks.evaluators import evaluator_of

RATIOS = (4.0, 5.8, 7.0, 8.9, 10.0, 11.0, 14.0)
"""How many times smaller than the original both fronts are looked at."""
_BYTES = ("bytes",)
_BUDGET_STEP = 1.1
_LEAST_IN_BUDGET = 6


@dataclass(frozen=True)
class Found:
    """What one split gave."""

    beside: Beside
    bits: dict[float, Quality | None]
    all: dict[float, Quality | None]
    worse: float
    """How many times the loss of bits alone, when choosing, that of all choices is at most."""
    spearman: float
    within: float | None
    """The mean over budgets, by how many trials each has."""
    trials: int
    incomplete: int
    seconds: dict[str, float]
    """Of the processor."""
    verified: str


def searched(case: Case, *, seed: int, rounds: int) -> Found:
    """Search by all choices, and by bits alone with as many trials."""
    begun, trials = time.process_time(), case.trials
    held = evaluator_of(case, seed=seed)
    clock = _Clock(begun)
    clock.lap("moments")
    offers = probed_offers(held)
    clock.lap("fits and probes")
    every = Proposals(offers, seed=seed)
    found = _run(every, held, min(12 + 1, trials))
    clock.lap("12 files")
    found += _run(every, held, trials, len(found))
    clock.lap("other files")
    bits = _run(Proposals(_bits(offers), seed=seed), held, trials)
    clock.lap("bits alone")
    fronts = [_chosen(held, case, one) for one in (bits, found)]
    return Found(
        beside=beside_others(held, case, rounds=rounds),
        bits=fronts[0],
        all=fronts[1],
        worse=_worse(found, bits),
        spearman=_spearman(offers, found),
        within=_within(offers, found),
        trials=len(found),
        incomplete=sum(not one.complete for one in found),
        seconds=clock.seconds,
        verified=_verified(held, case, found, offers),
    )


class _Clock:
    def __init__(self, begun: float) -> None:
        self._last = begun
        self.seconds: dict[str, float] = {}

    def lap(self, name: str) -> None:
        now = time.process_time()
        self.seconds[name], self._last = now - self._last, now


def _run(proposals: Proposals, held: Evaluator, trials: int, start: int = 0) -> list[Measured]:
    found: list[Measured] = []
    for number in range(start, trials):
        picks = proposals.ask(number)
        if picks is None:
            break
        found.append(held.measure(picks, proposals.front))
        proposals.tell(number, found[-1])
    return found


def _bits(offers: Sequence[LayerOffers]) -> list[LayerOffers]:
    return [
        LayerOffers(
            one.name,
            tuple(offer for offer in one.offers if not offer.pick.choice.has_structure),
            one.compensated_sensitivity,
            one.plain_sensitivity,
        )
        for one in offers
    ]


def _chosen(held: Evaluator, case: Case, found: Sequence[Measured]) -> dict[float, Quality | None]:
    front = front_of(found, _BYTES)
    chosen: dict[float, Quality | None] = {}
    known: dict[float, Quality] = {}
    for ratio in RATIOS:
        best = _best(front, len(case.original) / ratio)
        chosen[ratio] = None
        if best is None:
            continue
        if best.costs.bytes not in known:
            one = quality(held, case, held.content(best.picks), best.loss)
            assert isinstance(one, Quality), one
            known[best.costs.bytes] = one
        chosen[ratio] = known[best.costs.bytes]
    return chosen


def _best(front: Sequence[Measured], limit: float) -> Measured | None:
    within = [one for one in front if one.costs.bytes <= limit]
    return min(within, key=lambda one: one.loss or 0.0) if within else None


def _worse(found: Sequence[Measured], bits: Sequence[Measured]) -> float:
    """Over the files on the front of bits: 1 or less if that of all choices contains it."""
    front = front_of(found, _BYTES)
    largest = 0.0
    for one in front_of(bits, _BYTES):
        best = _best(front, one.costs.bytes)
        if not one.loss:
            continue
        largest = max(largest, np.inf if best is None else (best.loss or 0.0) / one.loss)
    return largest


def _predicted(offers: Sequence[LayerOffers], picks: Picks) -> float:
    known = {
        (one.name, offer.pick): one.sensitivity(offer.pick) * offer.error
        for one in offers
        for offer in one.offers
    }
    return sum(known[item] for item in picks.items())


def _spearman(offers: Sequence[LayerOffers], found: Sequence[Measured]) -> float:
    complete = [one for one in found if one.complete and one.picks]
    predicted = [_predicted(offers, one.picks) for one in complete]
    ranked: Any = spearmanr(predicted, [one.loss for one in complete])
    return float(ranked.statistic)


def _within(offers: Sequence[LayerOffers], found: Sequence[Measured]) -> float | None:
    budgets: dict[int, list[Measured]] = {}
    for one in found:
        if one.complete and one.picks:
            step = int(np.log(one.costs.bytes) / np.log(_BUDGET_STEP))
            budgets.setdefault(step, []).append(one)
    large = [own for own in budgets.values() if len(own) >= _LEAST_IN_BUDGET]
    if not large:
        return None
    values = [_spearman(offers, own) for own in large]
    return float(np.average(values, weights=[len(own) for own in large]))


def _verified(
    held: Evaluator, case: Case, found: Sequence[Measured], offers: Sequence[LayerOffers]
) -> str:
    """What a fresh process says of the file that the issue asks for."""
    ratio = case.wanted.ratio if case.wanted else RATIOS[2]
    best = _best(front_of(found, _BYTES), len(case.original) / ratio)
    if best is None:
        return f"no file is {ratio} times smaller"
    report = handed_out(held, best.picks, offers, original=case.original).report
    off = 100 * (report.bytes_predicted / report.bytes_after - 1)
    return f"{report.bytes_after:,} bytes (predicted {off:+.1f} %)"
