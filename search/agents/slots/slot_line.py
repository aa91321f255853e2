"""The slot's end of the line to its machine's agent, see `search.agents.slots.slot_frames`."""

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Final, final

from search.agents.slots.member_line import MemberLine
from search.agents.slots.shares import Shares
from search.agents.slots.slot_frames import Frame, receive, send
from search.errors import WorkerRefused

BEAT_SECONDS: Final = 1.0
"""How often a slot says of each attempt that it is alive."""


@final
class SlotLine:
    """The slot's end, for one attempt after another, or for several at a time.

    A thread listens, for the agent may speak at any time, and another one says that the process is
    alive for as long as it is.
    """

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._sending = threading.Lock()
        self._changed = threading.Condition()
        self._jobs = deque[Frame]()
        """What has not begun, in order."""
        self._called_back = set[str]()
        """Attempts that are to leave and were not known when that was heard."""
        self._members: dict[str, MemberLine] = {}
        self._is_over = False
        self._closed = threading.Event()
        for work, name in ((self._listen, "listen"), (self._beat, "beat")):
            threading.Thread(target=work, name=name, daemon=True).start()

    def next_job(self) -> Frame | None:
        """Wait for the next job's frame; null when there will be none."""
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._is_over)
            return None if self._is_over else self._jobs.popleft()

    @property
    def has_jobs(self) -> bool:
        """Whether there are jobs that have not begun."""
        return bool(self._jobs)

    def take_if(self, joins: Callable[[Frame], bool]) -> Frame | None:
        """The job that comes next, if there is one for which `joins` is true.

        Nothing passes what cannot be taken: that one's turn would never come.
        """
        with self._changed:
            if self._jobs and not self._is_over and joins(self._jobs[0]):
                return self._jobs.popleft()
        return None

    def begin(self, attempt_id: str, *, held: Shares, stood_still: Shares) -> MemberLine:
        """Say that an attempt has begun; it speaks for itself from here on."""
        member = MemberLine(attempt_id, self._say, held=held, stood_still=stood_still)
        with self._changed:
            self._members[attempt_id] = member
            if attempt_id in self._called_back:
                member.leave()
            if self._is_over:
                member.hear_the_end()
        self._say({"kind": "begin", "attempt": attempt_id})
        return member

    def over(self, member: MemberLine) -> None:
        """Say nothing more of an attempt than its last word."""
        with self._changed:
            del self._members[member.attempt_id]

    def _say(self, frame: Frame, content: bytes | None = None) -> None:
        try:
            with self._sending:
                send(self._pipe, frame, content)
        except OSError as error:
            raise WorkerRefused("this machine's agent is gone") from error

    def _listen(self) -> None:
        with suppress(EOFError, OSError):
            while True:
                frame, content = receive(self._pipe)
                if frame["kind"] == "bye":
                    break
                self._hear(frame, content)
        self._closed.set()
        with self._changed:
            self._is_over = True
            members = list(self._members.values())
            self._changed.notify_all()
        for member in members:
            member.hear_the_end()

    def _hear(self, frame: Frame, content: bytes | None) -> None:
        attempt_id, kind = frame["attempt"], frame["kind"]
        never_began = False
        with self._changed:
            member = self._members.get(attempt_id)
            if kind == "job" and attempt_id in self._called_back:
                never_began = True
            elif kind == "job":
                self._jobs.append(frame)
                self._changed.notify_all()
            elif kind == "leave" and member is None:
                waiting = [job for job in self._jobs if job["attempt"] == attempt_id]
                for job in waiting:
                    self._jobs.remove(job)
                never_began = bool(waiting)
                self._called_back.add(attempt_id)
        if member is not None:
            member.hear(frame, content)
        if never_began:
            with suppress(WorkerRefused):
                self._say({"kind": "left", "attempt": attempt_id, "frees": True, "lives": True})

    def _beat(self) -> None:
        while not self._closed.wait(BEAT_SECONDS):
            with self._changed:
                members = list(self._members.values())
            for member in members:
                # One that has ended meanwhile has no share any more.
                with suppress(WorkerRefused, KeyError):
                    member.beat()
