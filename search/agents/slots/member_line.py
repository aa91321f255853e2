"""One attempt's part of the line between its slot's process and its machine's agent."""

import queue
from collections.abc import Callable
from contextlib import suppress
from io import BufferedRandom
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from search.agents.attempt_line import AttemptLine, Hold
from search.agents.slots.shares import Shares
from search.agents.slots.slot_frames import Frame
from search.errors import SearchError, WorkerRefused
from search.training.jobs import (
    Completion,
    EpochReport,
    MeasurementReport,
    Progress,
    Verdict,
)
from search.training.stacks import Left

Say = Callable[[Frame, bytes | None], None]
"""Sends a frame, with its bytes if it has some; raises `WorkerRefused` when nobody hears it."""


_LEAVE: Final[tuple[Frame, bytes | None]] = ({"kind": "leave"}, None)


@final
class MemberLine:
    """What one attempt says and hears, and what it knows of its lease.

    Args:
        attempt_id: whose it is.
        say: takes its frames.
        held: divides the time for which its slot is held.
        stood_still: divides the time for which that stands still for a measurer.
    """

    def __init__(self, attempt_id: str, say: Say, *, held: Shares, stood_still: Shares) -> None:
        self.attempt_id = attempt_id
        self.leaves = False
        """Whether it is to store its state and go, while others may go on."""
        self._say_frame = say
        self._held, self._stood_still = held, stood_still
        self._answers = queue.SimpleQueue[tuple[Frame, bytes | None] | None]()
        self._stop: Verdict | None = None
        self._waits = False
        for shares in (held, stood_still):
            shares.join(attempt_id)

    def hear(self, frame: Frame, content: bytes | None) -> None:
        """Take a frame for this attempt; called by the thread that listens."""
        if frame["kind"] == "stop":
            verdict = "pause" if frame.get("pauses") else "stop"
            self._stop = Verdict(verdict=verdict, reason=frame["reason"], lease_seconds=0)
        if frame["kind"] == "leave":
            self.leave()
        if frame["kind"] in ("go_on", "fetched"):
            self._answers.put((frame, content))

    def leave(self) -> None:
        """Have it store its state and go, also where it waits for an answer: none may come.

        May be called by the handler of a signal.
        """
        self.leaves = True
        self._answers.put(_LEAVE)

    def hear_the_end(self) -> None:
        """Nothing comes any more; called by the thread that listens."""
        self._answers.put(None)

    def give_up_its_shares(self) -> None:
        """Leave the slot's time to the others."""
        for shares in (self._held, self._stood_still):
            shares.leave(self.attempt_id)

    @property
    def stop(self) -> Verdict | None:
        """The verdict to stop or to pause, once it has come."""
        return self._stop

    @property
    def held_seconds(self) -> float:
        """The attempt's share of the time for which its slot was held, see `Shares`."""
        return self._held.of(self.attempt_id)

    @property
    def stood_still_seconds(self) -> float:
        """Its share of the time for which that stood still for a measurer."""
        return self._stood_still.of(self.attempt_id)

    def check(self) -> None:
        """A member that loses its lease is ended by its agent."""

    def beat(self) -> None:
        """Say that the attempt's process is alive."""
        self._say(
            {
                "kind": "beat",
                "stood_still_seconds": self.stood_still_seconds,
                "held_seconds": self.held_seconds,
            }
        )

    def progress(self, progress: Progress) -> None:
        """Say how far a download is."""
        self._say({"kind": "progress"}, report=progress.model_dump_json())

    def say_epoch(self, report: EpochReport, *, waits: bool) -> None:
        """Report an epoch."""
        self._waits = waits
        self._say({"kind": "epoch", "waits": waits}, report=report.model_dump_json())

    def hear_verdict(self) -> Verdict:
        """Hear whether to train another one than the epoch that was reported last."""
        if self._waits:
            self._waits = False
            # Who leaves hears nothing, and is asked next whether it does.
            with suppress(Left):
                self._answer()
        return self._stop or Verdict(lease_seconds=0)

    def measurement(self, report: MeasurementReport) -> None:
        """Report one shape's throughput."""
        self._say({"kind": "measurement"}, report=report.model_dump_json())

    def get_artifact(self, role: str) -> bytes | None:
        """Fetch the trial's bytes of that role; None when it has none."""
        self._say({"kind": "fetch", "role": role})
        answer, content = self._answer()
        if answer.get("error"):
            raise SearchError(answer["error"])
        return content

    def put_artifact(self, role: str, content: bytes) -> None:
        """Have bytes stored under that role, in place of those before."""
        self._say({"kind": "artifact", "role": role, "size": len(content)}, content)

    def get_dataset(self, dataset_id: str, out: BufferedRandom) -> bool:
        """Fetch the data set of the attempt's own job into an empty file; False: there is none."""
        path = Path(str(out.name)).absolute()
        self._say({"kind": "dataset", "id": dataset_id, "path": str(path)})
        answer, _ = self._answer()
        if answer.get("error"):
            raise SearchError(answer["error"])
        return bool(answer["found"])

    def say_end(self, completion: Completion, *, code: int, frees: bool, lives: bool) -> None:
        """Say the last word, see `search.agents.slots.slot_frames`."""
        self._say(
            {"kind": "end", "code": code, "frees": frees, "lives": lives},
            report=completion.model_dump_json(),
        )

    def say_left(self, *, code: int, lives: bool) -> None:
        """Say that the attempt has gone without a last word."""
        self._say({"kind": "left", "code": code, "frees": True, "lives": lives})

    def _say(self, frame: Frame, content: bytes | None = None, *, report: str = "") -> None:
        whole = {"attempt": self.attempt_id, **frame}
        if report:
            # As text: the agent passes it on as it is.
            whole["report"] = report
        self._say_frame(whole, content)

    def _answer(self) -> tuple[Frame, bytes | None]:
        answer = self._answers.get()
        if answer is None:
            raise WorkerRefused("this machine's agent is gone")
        if answer is _LEAVE:
            raise Left
        return answer


if TYPE_CHECKING:
    _is_line: type[AttemptLine] = MemberLine
    _is_hold: type[Hold] = MemberLine
