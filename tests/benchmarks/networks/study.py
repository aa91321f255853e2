"""One network on one split: other tools' files, the two searches, and how they are predicted."""

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from models.graphs.fits import Dense
from models.graphs.reading import folded, graph_facts, read_graph
from models.graphs.sessions import Feed, GraphSession
from search.graphs.evaluator import Evaluator, handed_out, probed_offers
from search.graphs.front import Proposals
from search.graphs.network_data import network_samples
from search.graphs.picks import LayerOffers, Measured, Pick, Picks, front_of
from tests.benchmarks.cpu.timing import Timing, timed
from tests.benchmarks.networks.case import Case
from tests.benchmarks.networks.other_tools import files_of_others

RATIOS = (4.0, 5.8, 7.0, 8.9, 10.0, 11.0, 14.0)
"""How many times smaller than the original both fronts are looked at."""
OURS = "ours, 8 bits"
_ORIGINAL = "original"
_BYTES = ("bytes",)
_BUDGET_STEP = 1.1
_LEAST_IN_BUDGET = 6


@dataclass(frozen=True)
class Quality:
    """One file."""

    bytes: int
    loss: float
    """On the test part."""
    decided: float
    """Share of the test part's decisions that are the original's."""
    choosing: float | None = None
    """Loss on the choosing part, for files that were chosen by it."""


@dataclass(frozen=True)
class Found:
    """What one split gave."""

    original_bytes: int
    tools: dict[str, Quality | str]
    speeds: dict[str, Timing]
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
    with tempfile.TemporaryDirectory() as folder:
        model = folded(read_graph(case.original), Path(folder)).model
    samples = network_samples(
        graph_facts(model).inputs, case.arrays, each=case.each, zeros=case.zeros, seed=seed
    )
    held = Evaluator(
        case.original, model, samples, outputs=case.outputs, metric=case.metric, seed=seed
    )
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
    tools = files_of_others(model, samples.feeds(samples.split.calibration)[:32])
    ours = held.content({one.name: _eight(one) for one in offers})
    files = {OURS: ours, **tools}
    return Found(
        original_bytes=len(case.original),
        tools={name: _quality(held, case, file) for name, file in files.items()},
        speeds=_speeds(held, case, files, rounds),
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


def _eight(layer: LayerOffers) -> Pick:
    """8 bits; of whole rows, unless blocks lose a tenth of that."""
    found = {
        offer.pick: offer.error
        for offer in layer.offers
        if isinstance(offer.pick.choice, Dense) and offer.pick.choice.bits == 8
    }
    rows = [pick for pick in found if not pick.choice.group]
    blocks = [pick for pick in found if pick.choice.group]
    if not rows:
        return layer.offers[0].pick
    return next((one for one in blocks if found[one] < 0.1 * found[rows[0]]), rows[0])


def _quality(
    held: Evaluator, case: Case, file: bytes | str, choosing: float | None = None
) -> Quality | str:
    if isinstance(file, str):
        return file
    try:
        answers = held.answers(file, held.test)
        loss = held.loss(held.test, answers)
    # A tool's file may not run at all.
    except Exception as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())[:80]}"
    decided = held.compared(held.test, answers, case.decisions).value
    return Quality(len(file), loss, decided, choosing)


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
            one = _quality(held, case, held.content(best.picks), best.loss)
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


def _speeds(
    held: Evaluator, case: Case, files: dict[str, bytes | str], rounds: int
) -> dict[str, Timing]:
    feed = held.samples.feeds(held.test.places[:1])[0]
    sessions = {_ORIGINAL: GraphSession(case.original)}
    for name, file in files.items():
        if isinstance(file, bytes):
            try:
                sessions[name] = GraphSession(file)
                sessions[name].run(feed)
            # A tool's file that does not run has no speed; `_quality` says why.
            except Exception:
                sessions.pop(name, None)
    calls = {name: _call(session, feed) for name, session in sessions.items()}
    return timed(calls, baseline=_ORIGINAL, rounds=rounds)


def _call(session: GraphSession, feed: Feed) -> Callable[[], object]:
    return lambda: session.run(feed)


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
