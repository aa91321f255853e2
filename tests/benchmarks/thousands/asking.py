"""How long a server's answers take, as a client on the same machine sees it."""

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx2
import numpy as np
import psutil

from storage.cursors import cursor_of
from storage.engine import Database
from tests.benchmarks.thousands.changing import change as changed

_ROUNDS = 15
_LEAST_ROUNDS = 3
_ENOUGH_SECONDS = 6.0
_DASHBOARD_KEEPS_SECONDS = 10.5
"""For how long Optuna's dashboard answers from memory, and a little longer."""


@dataclass(frozen=True)
class Timing:
    """One question, asked several times."""

    wall: list[float] = field(default_factory=list[float])
    """Seconds each."""
    cpu: float = 0.0
    """Seconds of processor time that the answering process took for one, in the mean."""
    size: int = 0
    """Bytes of the last answer."""

    @property
    def median(self) -> float:
        """In seconds."""
        return statistics.median(self.wall)

    @property
    def quartiles(self) -> tuple[float, float]:
        """In seconds."""
        low, high = np.quantile(self.wall, (0.25, 0.75)).tolist()
        return low, high


Timings = dict[str, dict[int, Timing]]
"""Question -> number of trials of the study that it is asked of -> how long that takes."""


def exponent(by_size: Mapping[int, Timing]) -> float:
    """How the time grows with the trials: 1 is linearly, 0 not at all."""
    sizes, seconds = list(by_size), [timing.median for timing in by_size.values()]
    slope, _ = np.polyfit(np.log(sizes), np.log(seconds), 1)
    return float(slope)


def timed(
    act: Callable[[], int],
    process: psutil.Process,
    *,
    before: Callable[[], object] | None = None,
    rounds: int = _ROUNDS,
) -> Timing:
    """Ask several times; of what takes long, fewer."""
    wall: list[float] = []
    used, size = 0.0, 0
    while len(wall) < rounds and (len(wall) < _LEAST_ROUNDS or sum(wall) < _ENOUGH_SECONDS):
        if before is not None:
            before()
        cpu, began = _used(process), time.perf_counter()
        size = act()
        wall.append(time.perf_counter() - began)
        used += _used(process) - cpu
    return Timing(wall=wall, cpu=used / len(wall), size=size)


class Asker:
    """Asks one server."""

    def __init__(
        self,
        http: httpx2.Client,
        database: Database,
        *,
        api: psutil.Process,
        dashboard: psutil.Process,
    ) -> None:
        self._http = http
        self._database = database
        self._api = api
        self._dashboard = dashboard

    def of_study(self, study_id: str, count: int) -> Iterator[tuple[str, Timing]]:
        """What one asks of a study, both when it has just changed and when it has not."""
        path = f"/v1/studies/{study_id}"
        for name, place in (
            ("front", f"{path}/front"),
            ("front, CSV", f"{path}/front?format=csv"),
            ("front of two objectives", f"{path}/front?objectives=quality,parameters"),
            ("study", path),
            ("importance", f"{path}/importance"),
            ("hypervolume curve", f"{path}/hypervolume"),
            ("study's page", f"/studies/{study_id}"),
        ):
            yield f"{name}: first", self._timed(place, change=study_id)
            yield f"{name}: again", self._timed(place)
        for name, query in (
            ("first", ""),
            ("middle", f"&cursor={cursor_of(count // 2)}"),
            ("last", f"&cursor={cursor_of(max(0, count - 51))}"),
            ("infeasible ones", "&outcome=infeasible"),
        ):
            yield f"page of 50 trials: {name}", self._timed(f"{path}/trials?limit=50{query}")
        yield "all trials as CSV", self._timed(f"{path}/trials?format=csv")
        yield "event stream: first event", timed(lambda: self._first_event(path), self._api)

    def of_list(self, study_id: str) -> Iterator[tuple[str, Timing]]:
        """Everything that one asks of all studies."""
        for name, place in (
            ("page of 20 studies", "/v1/studies?limit=20"),
            ("page of 50 studies", "/v1/studies?limit=50"),
            ("page of 50 studies, HTML", "/"),
        ):
            yield f"{name}: first ever", self._timed(place, rounds=1)
            yield f"{name}: one has changed", self._timed(place, change=study_id)
            yield f"{name}: again", self._timed(place)
        yield "devices", self._timed("/v1/devices")
        yield "metrics", self._timed("/metrics")

    def of_dashboard(self, names: Mapping[int, str]) -> Timings:
        """Optuna's own pages: trials -> the id of the study that it has with so many."""
        found: Timings = {}
        listed = self._timed("/api/studies", of=self._dashboard)
        found["dashboard: list of studies"] = dict.fromkeys(names, listed)
        known = {
            study["study_name"].rpartition("[")[2].removesuffix("]"): study["study_id"]
            for study in self._http.get("/api/studies").json()["study_summaries"]
        }
        parts: dict[int, list[Timing]] = {count: [] for count in names}
        for turn in range(2):
            time.sleep(_DASHBOARD_KEEPS_SECONDS * turn)
            for count, study_id in names.items():
                place = f"/api/studies/{known[study_id]}"
                parts[count].append(self._timed(place, rounds=1, of=self._dashboard))
        for turn, name in enumerate(("first load", "load when its memory is over")):
            found[f"dashboard: study, {name}"] = {
                count: timings[turn] for count, timings in parts.items()
            }
        return found

    def _timed(
        self,
        path: str,
        *,
        change: str | None = None,
        rounds: int = _ROUNDS,
        of: psutil.Process | None = None,
    ) -> Timing:
        def ask() -> int:
            answer = self._http.get(path, timeout=600)
            assert answer.status_code == 200, (path, answer.status_code, answer.text[:500])
            return len(answer.content)

        before = None if change is None else lambda: changed(self._database, change)
        return timed(ask, of or self._api, before=before, rounds=rounds)

    def _first_event(self, path: str) -> int:
        with self._http.stream("GET", f"{path}/events", timeout=600) as answer:
            for line in answer.iter_lines():
                if line.startswith("data:"):
                    return len(line)
        raise AssertionError("a stream without events")


def memory_of(processes: Mapping[str, psutil.Process]) -> dict[str, dict[str, float]]:
    """Of each process: MiB resident, its share of them (PSS), and the most it ever had."""
    found: dict[str, dict[str, float]] = {}
    for name, process in processes.items():
        with suppress(psutil.Error):
            full: Any = process.memory_full_info()
            found[name] = {
                "rss": full.rss / 2**20,
                "pss": full.pss / 2**20,
                "peak": _peak_kibibytes(process.pid) / 2**10,
            }
    return found


def _peak_kibibytes(pid: int) -> float:
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as status:
        for line in status:
            if line.startswith("VmHWM"):
                return float(line.split()[1])
    return math.nan


def _used(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system
