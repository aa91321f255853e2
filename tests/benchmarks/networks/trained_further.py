"""A file of fewer multiply-adds, before and after its numbers are trained further."""

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from models.graphs.sessions import GraphSession
from search.graphs.evaluator import Evaluator, TrainingReport, probed_offers
from search.graphs.fine_tuning import Epoch, fine_tuned, untrainable
from search.graphs.front import Proposals
from search.graphs.metrics import Comparison
from search.graphs.picks import LayerOffers, Picks
from tests.benchmarks.cpu.timing import Timing, timed
from tests.benchmarks.networks.case import Case, Further
from tests.benchmarks.networks.evaluators import evaluator_of

SHARES = (0.6, 0.1, 0.3)
"""Of calibration, which is learned from, of choosing and of the test."""
_ORIGINAL, _FILE = "original", "file"


@dataclass(frozen=True)
class OnTest:
    """One file on the test part."""

    bytes: int
    loss: float
    decided: Comparison


@dataclass(frozen=True)
class Trained:
    """What training brought."""

    left: float
    """The share of multiply-adds that the file has."""
    samples: tuple[int, int, int]
    before: OnTest
    after: OnTest | str
    """Or why there is none."""
    told: TrainingReport | None
    speed: Timing
    seconds: float
    """Of the processor, for training alone."""


def trained_further(case: Case, how: Further, *, rounds: int, seed: int = 0) -> Trained:
    """Take the first file of a search within a limit on multiply-adds, and train it.

    Its numbers stay in single precision: fewer bits take as many multiply-adds.
    """
    held = evaluator_of(case, seed=seed, shares=SHARES, objectives=("multiply_adds",))
    picks = _picks(held, how.left)
    content = held.content(picks)
    split = held.samples.split
    begun = time.process_time()
    after, told = _trained(held, case, picks, how, seed)
    return Trained(
        left=held.multiply_adds(picks) / held.multiply_adds({}),
        samples=(len(split.calibration), len(split.choosing), len(split.test)),
        before=_tested(held, case, content),
        after=after,
        told=told,
        seconds=time.process_time() - begun,
        speed=_speed(held, case, content, rounds),
    )


def further_lines(cases: Sequence[tuple[Case, Further, Trained]]) -> Iterator[str]:
    """The table, and what follows from it, as Markdown."""
    yield (
        "| network | multiply-adds left | speed | trained on, chosen by, tested on | epochs | "
        "minutes | loss before | after | decided before, % | after, % |"
    )
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    for case, how, found in cases:
        yield _row(case, how, found)


def further_targets(case: Case, how: Further, found: Trained) -> Iterator[tuple[bool, str]]:
    """Whether what is wanted of the file is so."""
    if how.decided is None:
        return
    before, after = found.before.decided.value, found.after
    decided = before if isinstance(after, str) else after.decided.value
    yield (
        decided >= how.decided,
        f"{case.title}: trained further, {100 * decided:.1f} % decided at {found.left:.2f} of its "
        f"multiply-adds (untrained {100 * before:.1f} %; wanted: {100 * how.decided:g} % at "
        f"{how.left:g})",
    )


def _row(case: Case, how: Further, found: Trained) -> str:
    before, after, speed = found.before, found.after, 1 / found.speed.ratio
    if isinstance(after, str):
        trained = f"{after} | | {_share(before.decided)} | |"
    else:
        trained = (
            f"{before.loss:.2g} | {after.loss:.2g} | {_share(before.decided)} | "
            f"{_share(after.decided)} |"
        )
    best = "" if found.told is None else f", best {found.told.best_epoch}"
    return (
        f"| {case.title} | {found.left:.2f} | {speed:.2f} | {', '.join(map(str, found.samples))} | "
        f"{how.how.epochs}{best} | {found.seconds / 60:.1f} | {trained}"
    )


def _share(found: Comparison) -> str:
    """With the interval over samples."""
    interval = found.interval
    if interval is None:
        return f"{100 * found.value:.1f}"
    return f"{100 * found.value:.1f} ({100 * interval.low:.1f} to {100 * interval.high:.1f})"


def _picks(held: Evaluator, left: float) -> Picks:
    """The first trial within the limit: that of a price, nearest to it."""
    most = left * held.multiply_adds({})
    whole = [
        LayerOffers(
            one.name,
            tuple(offer for offer in one.offers if offer.pick.choice.bits == 32),
            one.compensated_sensitivity,
            one.plain_sensitivity,
        )
        for one in probed_offers(held)
    ]
    proposals = Proposals(
        whole,
        objectives=held.objectives,
        within=lambda picks: held.multiply_adds(picks) <= most,
    )
    return max(proposals.first[1:], key=held.multiply_adds)


def _trained(
    held: Evaluator, case: Case, picks: Picks, how: Further, seed: int
) -> tuple[OnTest | str, TrainingReport | None]:
    reason = untrainable(held)
    if reason is not None:
        return reason, None

    def after_epoch(epoch: Epoch) -> bool:
        sys.stderr.write(f"{case.title}, epoch {epoch.number}: {epoch.value:.4g}\n")
        return True

    found = fine_tuned(held, picks, how.how, seed=seed, after_epoch=after_epoch)
    return _tested(held, case, found.content), found.told


def _tested(held: Evaluator, case: Case, content: bytes) -> OnTest:
    answers = held.answers(content, held.test)
    decided = held.compared(held.test, answers, case.decisions)
    return OnTest(len(content), held.loss(held.test, answers), decided)


def _speed(held: Evaluator, case: Case, content: bytes, rounds: int) -> Timing:
    feed = held.samples.feeds(held.test.places[:1])[0]
    files = {_ORIGINAL: GraphSession(case.original), _FILE: GraphSession(content)}
    calls = {name: partial(one.run, feed) for name, one in files.items()}
    return timed(calls, baseline=_ORIGINAL, rounds=rounds)[_FILE]
