"""Files of other tools beside ours of as many bits, without any search."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from models.graphs.fits import Dense
from models.graphs.layers import Layer
from models.graphs.sessions import GraphSession
from search.graphs.evaluator import Evaluator
from search.graphs.picks import UNCHANGED, Pick, offered_picks
from tests.benchmarks.cpu.timing import Timing, timed
from tests.benchmarks.networks.case import Case
from tests.benchmarks.networks.other_tools import files_of_others

OURS, OURS_OF_4 = "ours, 8 bits", "ours, 4 bits"
_BITS = {OURS: 8, OURS_OF_4: 4}
_ORIGINAL = "original"
_FEEDS = 32
"""Of the calibration part; the tools keep what they see."""


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
class Beside:
    """Files by the names of tools, on one split."""

    original_bytes: int
    tools: Mapping[str, Quality | str]
    speeds: Mapping[str, Timing]


def beside_others(held: Evaluator, case: Case, *, rounds: int) -> Beside:
    """Make and measure them."""
    feeds = held.samples.feeds(held.samples.split.calibration)[:_FEEDS]
    ours = {
        name: held.content({one.name: _of_bits(held, one, bits) for one in held.layers})
        for name, bits in _BITS.items()
    }
    files = {**ours, **files_of_others(held.model, feeds)}
    return Beside(
        original_bytes=len(case.original),
        tools={name: quality(held, case, file) for name, file in files.items()},
        speeds=_speeds(held, case, files, rounds),
    )


def quality(
    held: Evaluator, case: Case, file: bytes | str, choosing: float | None = None
) -> Quality | str:
    """One file on the test part, or why there is nothing to say of it."""
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


def _of_bits(held: Evaluator, layer: Layer, bits: int) -> Pick:
    """So many bits of whole rows, unless blocks lose a tenth of that."""
    picks = [
        pick
        for pick in offered_picks(layer, held.objectives, [Dense])
        if pick.choice.bits == bits and pick.compensated
    ]
    found = {pick: fit.error for pick, fit in held.fits.fits(layer.name, picks).items()}
    rows = [pick for pick in found if not pick.choice.group]
    blocks = [pick for pick in found if pick.choice.group]
    if not rows:
        return blocks[0] if blocks else UNCHANGED
    return next((one for one in blocks if found[one] < 0.1 * found[rows[0]]), rows[0])


def _speeds(
    held: Evaluator, case: Case, files: Mapping[str, bytes | str], rounds: int
) -> dict[str, Timing]:
    feed = held.samples.feeds(held.test.places[:1])[0]
    sessions = {_ORIGINAL: GraphSession(case.original)}
    for name, file in files.items():
        if isinstance(file, bytes):
            try:
                sessions[name] = GraphSession(file)
                sessions[name].run(feed)
            # A tool's file that does not run has no speed; `quality` says why.
            except Exception:
                sessions.pop(name, None)
    calls = {name: partial(session.run, feed) for name, session in sessions.items()}
    return timed(calls, baseline=_ORIGINAL, rounds=rounds)
