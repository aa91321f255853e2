"""The line between a slot's process and its machine's agent: frames over a socket pair.

A frame is JSON; one with a `size` is followed by so many bytes in a frame of their own. The slot
says `epoch`, `measurement`, `progress`, `artifact`, `beat`, `end`, and asks by `fetch` and
`dataset`; the agent says `job`, `stop`, `go_on`, `fetched` and `bye`. There is no key and no token
on this line: the agent knows who is at its other end.
"""

import json
import queue
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from io import BufferedRandom
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from search.agents.attempt_line import AttemptLine, Hold
from search.errors import SearchError, WorkerRefused
from search.training.jobs import (
    Completion,
    EpochReport,
    MeasurementReport,
    Progress,
    Verdict,
)

Frame = Mapping[str, Any]

BEAT_SECONDS: Final = 1.0
"""How often a slot says that it is alive."""


def send(pipe: Connection, frame: Frame, content: bytes | None = None) -> None:
    """Send a frame, and its bytes if it has some; the caller sees to it that nobody cuts in."""
    pipe.send_bytes(json.dumps(frame).encode())
    if content is not None:
        pipe.send_bytes(content)


def receive(pipe: Connection) -> tuple[dict[str, Any], bytes | None]:
    """Wait for a frame; raises `EOFError` or `OSError` when the other end is gone."""
    frame: dict[str, Any] = json.loads(pipe.recv_bytes())
    return frame, pipe.recv_bytes() if "size" in frame else None


@final
class SlotLine:
    """The slot's end, for one attempt after another.

    A thread listens, for the agent may speak at any time, and another one says that the process is
    alive for as long as it is.
    """

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._sending = threading.Lock()
        self._jobs = queue.SimpleQueue[Frame | None]()
        self._answers = queue.SimpleQueue[tuple[Frame, bytes | None] | None]()
        self._stop: Verdict | None = None
        self._begun = time.monotonic()
        self._attempt = ""
        self._lock_seconds = lambda: 0.0
        self._closed = threading.Event()
        for work, name in ((self._listen, "listen"), (self._beat, "beat")):
            threading.Thread(target=work, name=name, daemon=True).start()

    def next_job(self) -> Frame | None:
        """Wait for the next job's frame; null when there will be none."""
        return self._jobs.get()

    def begin(self, attempt_id: str, *, stood_still_seconds: Any) -> None:
        """Speak for this attempt from here on."""
        self._stop = None
        self._begun = time.monotonic()
        self._lock_seconds = stood_still_seconds
        self._attempt = attempt_id

    def end(self, completion: Completion, *, lives: bool) -> None:
        """Say the attempt's last word, and whether this process takes another job."""
        attempt, self._attempt = self._attempt, ""
        self._say(
            {"kind": "end", "attempt": attempt, "lives": lives}, report=completion.model_dump_json()
        )

    @property
    def stop(self) -> Verdict | None:
        """The verdict to stop or to pause, once it has come."""
        return self._stop

    @property
    def held_seconds(self) -> float:
        """How long the attempt has had its slot, by a clock that nobody sets."""
        return time.monotonic() - self._begun

    def check(self) -> None:
        """Whoever loses its lease is killed by its agent."""

    def progress(self, progress: Progress) -> None:
        """Say how far a download is."""
        self._say({"kind": "progress"}, report=progress.model_dump_json())

    def epoch(self, report: EpochReport, *, waits: bool) -> Verdict:
        """Report an epoch and hear whether to train another one."""
        self._say({"kind": "epoch", "waits": waits}, report=report.model_dump_json())
        if waits:
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

    def _say(self, frame: Frame, content: bytes | None = None, *, report: str = "") -> None:
        whole = {"attempt": self._attempt, **frame}
        if report:
            # As text: the agent passes it on as it is.
            whole["report"] = report
        try:
            with self._sending:
                send(self._pipe, whole, content)
        except OSError as error:
            raise WorkerRefused("this machine's agent is gone") from error

    def _answer(self) -> tuple[Frame, bytes | None]:
        answer = self._answers.get()
        if answer is None:
            raise WorkerRefused("this machine's agent is gone")
        return answer

    def _listen(self) -> None:
        with suppress(EOFError, OSError):
            while True:
                frame, content = receive(self._pipe)
                if frame["kind"] == "bye":
                    break
                if frame["kind"] == "job":
                    self._jobs.put(frame)
                    continue
                if frame["kind"] == "stop" and frame["attempt"] == self._attempt:
                    verdict = "pause" if frame.get("pauses") else "stop"
                    self._stop = Verdict(verdict=verdict, reason=frame["reason"], lease_seconds=0)
                if frame["kind"] in ("go_on", "fetched"):
                    self._answers.put((frame, content))
        self._closed.set()
        self._jobs.put(None)
        self._answers.put(None)

    def _beat(self) -> None:
        while not self._closed.wait(BEAT_SECONDS):
            if self._attempt:
                with suppress(WorkerRefused):
                    self._say(
                        {
                            "kind": "beat",
                            "stood_still_seconds": self._lock_seconds(),
                            "held_seconds": self.held_seconds,
                        }
                    )


if TYPE_CHECKING:
    _is_line: type[AttemptLine] = SlotLine
    _is_hold: type[Hold] = SlotLine
