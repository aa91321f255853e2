"""A large study that runs on: whether slots wait for the sampler, and what looks cost meanwhile."""

import re
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeAlias

import httpx2

from storage.engine import Database
from storage.records import AttemptKind, TrialState
from storage.repositories.attempts import Attempts
from storage.repositories.trials import Trials
from tests.service.running import Server, wait_until

Span: TypeAlias = tuple[float, float]
"""A time from and to, in seconds since the epoch."""

_PATIENCE_SECONDS = 900.0
_LOOK_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Idle:
    """How long slots stood idle while more was to be tried, in slot seconds."""

    window: float
    """Slot seconds from the first attempt to the last suggestion."""
    asks: float
    """Nothing was there to be trained or measured: the sampler was waited for."""
    other: float
    """Something waited: to be measured, or to be started."""


@dataclass
class Life:
    """What was seen of a study that ran on."""

    trials: int = 0
    seconds: float = 0.0
    first_attempt: float = 0.0
    """Seconds from the larger budget to the first attempt: the study is claimed, reconciled and
    asked for its first suggestion in between."""
    after_restart: float = 0.0
    """The same from the moment on that a server that was started again is ready."""
    idle: Idle | None = None
    ask_seconds: float = 0.0
    asks: int = 0
    looks: dict[str, list[float]] = field(default_factory=dict[str, list[float]])


def run_on(server: Server, database: Database, study_id: str, *, further: int) -> Life:
    """Give a finished study a larger budget and watch it until that is used up, or for long."""
    life = Life()
    before = _number_of_trials(database, study_id)
    given = time.time()
    _give(server, study_id, further)
    first = _first_attempt(database, study_id, since=given)
    life.first_attempt = first - given
    paths = {"study": f"/v1/studies/{study_id}", "front": f"/v1/studies/{study_id}/front"}
    life.looks = {name: [] for name in paths}
    while time.time() - given < _PATIENCE_SECONDS:
        for name, path in paths.items():
            began = time.perf_counter()
            answer = server.http.get(path, timeout=600)
            life.looks[name].append(time.perf_counter() - began)
            if name == "study" and answer.json()["state"] == "finished":
                break
        else:
            time.sleep(_LOOK_SECONDS)
            continue
        break
    life.seconds = time.time() - given
    life.asks, life.ask_seconds = _asks(server.http)
    life.trials = _number_of_trials(database, study_id) - before
    life.idle = idle_of(database, study_id, since=first, before=before)
    _give(server, study_id, 4)
    server.stop()
    server.start()
    again = time.time()
    life.after_restart = max(0.0, _first_attempt(database, study_id, since=again) - again)
    return life


def idle_of(database: Database, study_id: str, *, since: float, before: int) -> Idle:
    """What the rows tell of the slots' time: trials from number `before` on, and their attempts."""
    with database.read() as session:
        trials = [t for t in Trials(session).list(study_id) if t.number >= before]
        attempts = Attempts(session).of_study(study_id, AttemptKind.TRAIN)
    now = time.time()
    until = max((t.created_at.timestamp() for t in trials), default=since)
    waiting = merged(
        (t.created_at.timestamp(), _stamp(t.started_at or t.finished_at, now)) for t in trials
    )
    slots = sorted({a.slot for a in attempts if a.started_at.timestamp() >= since})
    asks = other = 0.0
    for slot in slots:
        busy = merged(
            (a.started_at.timestamp(), _stamp(a.ended_at, now))
            for a in attempts
            if a.slot == slot and _stamp(a.ended_at, now) >= since
        )
        for free in gaps(busy, since, until):
            waited = sum(_shared(free, span) for span in waiting)
            other += waited
            asks += free[1] - free[0] - waited
    return Idle(window=len(slots) * (until - since), asks=asks, other=other)


def merged(spans: Iterable[Span]) -> list[Span]:
    """The same times, as spans that do not overlap."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def gaps(busy: Sequence[Span], since: float, until: float) -> list[Span]:
    """What lies between spans that do not overlap, within a window."""
    found: list[Span] = []
    place = since
    for start, end in busy:
        if start > place:
            found.append((place, min(start, until)))
        place = max(place, end)
    found.append((place, until))
    return [(start, end) for start, end in found if end > start]


def _shared(one: Span, other: Span) -> float:
    return max(0.0, min(one[1], other[1]) - max(one[0], other[0]))


def _stamp(at: datetime | None, now: float) -> float:
    return now if at is None else at.timestamp()


def _give(server: Server, study_id: str, further: int) -> None:
    """A budget of so many trials more than were dispatched."""
    trials = server.study(study_id)["progress"]["trials"]
    ended = sum(trials[state] for state in ("complete", "stopped", "failed", "infeasible"))
    budget = {"trials": ended - trials["refused"] + further}
    answer = server.http.patch(f"/v1/studies/{study_id}", json={"budget": budget})
    assert answer.status_code == 200, answer.text


def _first_attempt(database: Database, study_id: str, *, since: float) -> float:
    def started() -> float | None:
        with database.read() as session:
            found = Attempts(session).running(study_id)
            begun = Trials(session).summaries(study_id, TrialState.RUNNING)
        training = [a.started_at for a in found if a.kind == AttemptKind.TRAIN and begun]
        later = [at.timestamp() for at in training if at >= datetime.fromtimestamp(since, UTC)]
        return min(later, default=None)

    return float(wait_until(started, what="an attempt", seconds=_PATIENCE_SECONDS))


def _number_of_trials(database: Database, study_id: str) -> int:
    with database.read() as session:
        return Trials(session).counts(study_id).total


def _asks(http: httpx2.Client) -> tuple[int, float]:
    """How many asks the coordinator timed, and how long they took in all."""
    text = http.get("/metrics", timeout=600).text
    found = {
        kind: sum(
            float(line.rpartition(" ")[2])
            for line in text.splitlines()
            if re.match(rf"reflectory_ask_seconds_{kind}\{{", line)
        )
        for kind in ("count", "sum")
    }
    return int(found["count"]), found["sum"]


def median_and_worst(seconds: Sequence[float]) -> str:
    """In milliseconds."""
    return f"{1000 * statistics.median(seconds):.0f} ({1000 * max(seconds):.0f} at most)"
