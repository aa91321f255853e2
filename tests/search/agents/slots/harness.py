"""Slots' processes, and their agent as far as they see it."""

import json
from collections import defaultdict
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import psutil

from models.spec import Spec
from search.agents.executor import AttemptTicket, Exit
from search.agents.forking.server_process import Launch, by_exec
from search.agents.slots.slot_frames import Frame
from search.agents.slots.slot_processes import SlotProcesses
from search.training.jobs import (
    Completion,
    EpochReport,
    Job,
    MeasurementReport,
    Progress,
)
from tests.patience import wait_while_it_moves

PLACE = "cpu-0"
TIMES = {"seconds", "held_seconds"}
"""What an epoch's report says of the clock."""

REPORTS: dict[str, type[Spec]] = {
    "epoch": EpochReport,
    "measurement": MeasurementReport,
    "progress": Progress,
    "end": Completion,
}

Report = TypeVar("Report", bound=Spec)


def ticket(attempt: str, folder: Path, **given: Any) -> AttemptTicket:
    """What an attempt is told that keeps its files in this folder."""
    known: dict[str, Any] = {
        "lease_seconds": 60.0,
        "device": "cpu",
        "data": None,
        "cache": folder / "cache",
        "lock_folder": folder / "lock",
        "threads": 1,
    }
    return AttemptTicket(attempt_id=attempt, **known | given)


class Heard:
    """What one attempt said, and how its agent answers."""

    def __init__(self) -> None:
        self.frames: list[tuple[Frame, bytes | None]] = []
        self.artifacts: dict[str, bytes] = {}
        """What it stored; also what it is given when it asks."""
        self.verdict: Callable[[EpochReport], str | None] = lambda _report: None
        """Why it is to stop after an epoch; null: it goes on."""
        self.holds: Callable[[Frame], bool] = lambda _frame: False
        """Whether a word that wants an answer gets none."""

    def said(self, kind: str) -> list[tuple[Frame, bytes | None]]:
        """The words of a kind, in order."""
        return [one for one in self.frames if one[0]["kind"] == kind]

    @property
    def words(self) -> list[str]:
        """All of them by name, but that it is alive."""
        told = [frame for frame, _ in self.frames if frame["kind"] != "beat"]
        return [f"{one['kind']} {one.get('role', '')}".strip() for one in told]

    def bodies(self, kind: type[Report]) -> list[Report]:
        """Its reports of a kind, in order."""
        reports = [
            REPORTS[frame["kind"]].model_validate_json(frame["report"])
            for frame, _ in self.frames
            if frame["kind"] in REPORTS
        ]
        return [report for report in reports if isinstance(report, kind)]

    @property
    def epochs(self) -> list[EpochReport]:
        """What it reported of its epochs."""
        return self.bodies(EpochReport)

    @property
    def completion(self) -> Completion:
        """Its last word."""
        (completion,) = self.bodies(Completion)
        return completion


class Slots:
    """Slots' processes, and what their agent hears of them."""

    def __init__(self, folder: Path, *, launch: Launch = by_exec) -> None:
        self._folder = folder
        self._others = {one.pid for one in psutil.Process().children()}
        self.processes = SlotProcesses(
            logs=folder / "logs", on_frame=self._on_frame, on_free=self._on_free, launch=launch
        )
        self._heard: dict[str, Heard] = defaultdict(Heard)
        self._ends: dict[str, Exit] = {}

    def of(self, attempt: str) -> Heard:
        """What an attempt said and says."""
        return self._heard[attempt]

    def forget(self, attempt: str) -> Heard:
        """Begin anew with an attempt of this name."""
        self._ends.pop(attempt, None)
        self._heard[attempt] = Heard()
        self.processes.log_path(attempt).unlink(missing_ok=True)
        return self._heard[attempt]

    def _on_frame(self, attempt: str, frame: Frame, content: bytes | None) -> None:
        heard = self._heard[attempt]
        heard.frames.append((frame, content))
        answer = partial(self.processes.tell, attempt)
        if frame["kind"] == "artifact":
            assert content is not None
            heard.artifacts[frame["role"]] = content
        if frame["kind"] == "fetch":
            found = heard.artifacts.get(frame["role"])
            size: Mapping[str, Any] = {} if found is None else {"size": len(found)}
            answer({"kind": "fetched", **size}, found)
        if frame["kind"] == "epoch":
            report = EpochReport.model_validate_json(frame["report"])
            reason = heard.verdict(report)
            if reason is not None:
                answer({"kind": "stop", "attempt": attempt, "reason": reason})
        if frame.get("waits") and not heard.holds(frame):
            answer({"kind": "go_on"})

    def _on_free(self, attempt: str, ended: Exit) -> None:
        self._ends[attempt] = ended

    def start(self, attempt: str, job: Job, *, at: int | None = None, **given: Any) -> Heard:
        """Have a job begin; on a place it may be trained with others."""
        given = given if at is None else {"together": True, **given}
        told = ticket(attempt, self._folder, **given)
        place = f"{PLACE}+{at}" if at else PLACE
        self.processes.start(told, job.model_dump(mode="json"), place=place)
        return self._heard[attempt]

    def end_of(self, attempt: str) -> Exit:
        """How an attempt ended, once it has."""
        return wait_while_it_moves(
            lambda: self._ends.get(attempt),
            what=f"the end of {attempt}",
            moved=lambda: len(self._heard[attempt].frames),
            pause=0.01,
        )

    def do(self, attempt: str, job: Job, **given: Any) -> Exit:
        """Have a job done, up to its end."""
        self.start(attempt, job, **given)
        return self.end_of(attempt)

    def log(self, attempt: str) -> str:
        """What an attempt wrote."""
        return self.processes.log_path(attempt).read_text()

    def has_ended(self, attempt: str) -> bool:
        """Whether an attempt has ended."""
        return attempt in self._ends

    def said(self, attempt: str, kind: str) -> list[tuple[Frame, bytes | None]]:
        """What an attempt said of a kind, in order."""
        return self._heard[attempt].said(kind)

    def epochs(self, attempt: str) -> list[dict[str, Any]]:
        """What an attempt reported of its epochs, but for the time that they took."""
        reports = [json.loads(frame["report"]) for frame, _ in self.said(attempt, "epoch")]
        return [{name: one[name] for name in one if name not in TIMES} for one in reports]

    def checkpoint(self, attempt: str) -> bytes | None:
        """The last checkpoint that an attempt stored."""
        return self._heard[attempt].artifacts.get("checkpoint")

    def server(self) -> int:
        """The fork server that this process started for these slots."""
        (server,) = (one for one in psutil.Process().children() if one.pid not in self._others)
        return server.pid

    def pids(self) -> list[int]:
        """The processes of slots: children of our own fork server, of all that this process has."""
        servers = [one for one in psutil.Process().children() if one.pid not in self._others]
        return [one.pid for server in servers for one in server.children()]


@contextmanager
def slots_in(folder: Path) -> Generator[Slots]:
    """Slots that end with the block."""
    slots = Slots(folder)
    try:
        yield slots
    finally:
        slots.processes.close()
