"""A machine's agent: it joins, asks what to run, runs it here, and says all that comes of it.

It owns the machine's slots and alone speaks to the service. One thread asks for orders, one says
what there is to say, and each slot's process has one that listens to it. Each tries again for ever,
with pauses that grow, while the service is away: attempts go on meanwhile, see Note [An agent].
"""

import hashlib
import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, final

from search.agents.agent_client import AgentLink, NoAnswer, NotTaken
from search.agents.executor import AttemptTicket, Exit
from search.agents.log_tail import LogTail
from search.agents.outbox import Batch, Outbox, Word
from search.agents.protocol import Join, Joined, Offer, Orders, Poll, Refusal, Synced
from search.agents.slots.place_queues import PlaceQueues
from search.agents.slots.slot_frames import Frame
from search.agents.slots.slot_processes import SlotProcesses
from search.errors import ExecutorError, MachineRefused, SearchError
from search.measuring.measurement_lock import lock_folder
from storage.endings import AttemptCause

_log = logging.getLogger(__name__)

_LONGEST_WAIT_SECONDS: Final = 10.0
"""How long the service may wait for orders before it answers, and take for all else."""
_TICK_SECONDS: Final = 1.0
_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 5.0
_STORE_SECONDS: Final = 30.0
"""How long attempts may take to store where they are when the machine stops."""
_GOODBYE_SECONDS: Final = 5.0
"""How long the service may take to hear that the machine stops, and how its attempts ended."""
GO_ON_SECONDS: Final = 300.0
"""How long attempts go on while the service is away; then they are ended, for it counts them as
lost by then."""
_UPLOADS: Final = 2
_LONGEST_DETAIL: Final = 2000


@dataclass(frozen=True, kw_only=True)
class AgentFolders:
    """Where this machine keeps what does not go over HTTP."""

    data: Path | None
    """The user's own data files."""
    cache: Path
    """Downloaded and decoded data."""
    locks: Path
    """Lock files of the measurement locks."""


@final
class Agent:
    """One process that joined as one machine.

    Args:
        link: the line to the service.
        join: who this machine is, with its slots.
        slots: makes what runs attempts here, given who hears of it.
        folders: where they find what they need.
    """

    def __init__(
        self,
        link: AgentLink,
        join: Join,
        slots: Callable[..., SlotProcesses],
        *,
        folders: AgentFolders,
    ) -> None:
        self._link = link
        self._join = join
        self._folders = folders
        self._slots = slots(on_frame=self._hear, on_free=self._free)
        self._outbox = Outbox(join.session, lease_seconds=_LONGEST_WAIT_SECONDS)
        self._lock = threading.Condition()
        self._running: dict[str, Offer] = {}
        """What was started, up to the moment when the service knows that its slot is free."""
        self._places = PlaceQueues()
        self._offered_at: dict[str, float] = {}
        """When those were offered whose beginning the service does not know yet."""
        self._logs: dict[str, LogTail] = {}
        self._ending: dict[str, float] = {}
        self._lost: dict[str, tuple[AttemptCause, str]] = {}
        """Attempts whose words are not taken any more, and why."""
        self._draining = False
        self._over = threading.Event()
        self._refusal: MachineRefused | None = None
        self._wait_seconds = _LONGEST_WAIT_SECONDS
        self._heard_at = time.monotonic()
        self._uploads = ThreadPoolExecutor(_UPLOADS, thread_name_prefix="upload")

    def run(self, stop: threading.Event, *, joined: Callable[[str], None]) -> None:
        """Work until `stop` is set; `joined` gets the machine's name each time that it joins.

        Then what runs stores where it is and ends, for another attempt to go on from there.

        Raises:
            MachineRefused: the service does not take this machine (any more).
        """

        def ask() -> None:
            try:
                self._ask(joined)
            except MachineRefused as refusal:
                self._refusal = refusal
            finally:
                stop.set()

        threads = [
            threading.Thread(target=work, name=name, daemon=True)
            for name, work in (("ask", ask), ("tell", self._tell))
        ]
        for thread in threads:
            thread.start()
        try:
            stop.wait()
            self._wind_down()
        finally:
            self._over.set()
            self._outbox.close()
            self._slots.close()
            self._uploads.shutdown(wait=False, cancel_futures=True)
        if self._refusal is not None:
            raise self._refusal

    # What is asked: orders.

    def _ask(self, joined: Callable[[str], None]) -> None:
        """Join, and poll for as long as it lasts."""
        pauses = _Pauses()
        number, is_joined = 0, False
        while not self._over.is_set():
            try:
                if not is_joined:
                    self._take(self._link.join(self._join), joined)
                    is_joined = True
                number += 1
                orders = self._link.poll(self._poll(number))
            except NoAnswer as trouble:
                if self._over.is_set():
                    return
                _log.warning("the server does not answer", extra={"reason": trouble})
                self._over.wait(pauses.next())
                continue
            except MachineRefused as refusal:
                if self._draining:
                    return
                if not is_joined:
                    raise
                _log.warning("joining again", extra={"reason": refusal})
                is_joined = False
                self._over.wait(pauses.next())
                continue
            pauses.reset()
            self._heard_at = time.monotonic()
            self._obey(orders)

    def _take(self, taken: Joined, joined: Callable[[str], None]) -> None:
        # Nobody counts on a machine that is silent for a lease time.
        third = taken.lease_seconds / 3
        self._wait_seconds = min(_LONGEST_WAIT_SECONDS, third)
        self._link.timeout = min(_LONGEST_WAIT_SECONDS, max(1.0, third))
        self._outbox.lease_seconds = taken.lease_seconds
        joined(taken.name)

    def _poll(self, number: int) -> Poll:
        with self._lock:
            return Poll(
                session=self._join.session,
                number=number,
                running=tuple(self._running),
                ending=dict(self._ending),
                wait_seconds=self._wait_seconds,
            )

    def _obey(self, orders: Orders) -> None:
        for end in orders.end:
            with self._lock:
                self._ending[end.attempt] = end.grace_seconds
            self._cancel(end.attempt, end.grace_seconds)
        for offer in orders.start:
            with self._lock:
                if self._draining or offer.attempt in self._running:
                    continue
                self._running[offer.attempt] = offer
                if offer.ahead:
                    self._offered_at[offer.attempt] = time.monotonic()
                self._outbox.open(offer.attempt, offer.token)
                has_its_place = self._places.join(offer)
            if has_its_place:
                self._begin(offer)

    def _cancel(self, attempt_id: str, grace_seconds: float) -> None:
        """End an attempt; what waits for its place only has to be forgotten."""
        if self._places.withdraw(attempt_id):
            self._free(attempt_id, Exit(attempt_id, None, None, "not started: it was called back"))
        else:
            self._slots.cancel(attempt_id, grace_seconds)

    def _begin(self, offer: Offer) -> None:
        """Start what has its place, and say so where it may have waited for that."""
        if offer.ahead:
            waited = time.monotonic() - self._offered_at[offer.attempt]
            self._outbox.add(Word(offer.attempt, {"kind": "began", "waited_seconds": waited}))
        self._start(offer)

    def _start(self, offer: Offer) -> None:
        ticket = AttemptTicket(
            attempt_id=offer.attempt,
            lease_seconds=offer.lease_seconds,
            device=offer.device,
            data=self._folders.data,
            cache=self._folders.cache,
            lock_folder=lock_folder(self._folders.locks, offer.device),
            threads=offer.threads,
            memory=offer.memory,
            tenant=offer.tenant,
            together=offer.together,
            log_format=offer.log_format,
            log_fields=offer.log_fields,
        )
        with self._lock:
            self._logs[offer.attempt] = LogTail(self._slots.log_path(offer.attempt))
        try:
            if all(slot.device != offer.device for slot in self._join.slots):
                raise ExecutorError(f"device {offer.device!r} is not on this machine")
            self._slots.start(ticket, offer.job, place=offer.place)
        except ExecutorError as error:
            _log.error("an attempt did not start", extra={"reason": error})
            self._free(offer.attempt, Exit(offer.attempt, None, None, f"not started: {error}"))
            return
        # An order to end it may have come before there was a process.
        with self._lock:
            stops = _STORE_SECONDS if self._draining else None
            grace_seconds = self._ending.get(offer.attempt, stops)
        if grace_seconds is not None:
            self._slots.cancel(offer.attempt, grace_seconds)

    # What slots say.

    def _hear(self, attempt_id: str, frame: Frame, content: bytes | None) -> None:
        """Pass on what an attempt says; called by the thread that listens to its slot."""
        react = self._reactions[frame["kind"]]
        if frame["kind"] not in ("fetch", "dataset"):
            if frame["kind"] != "beat":
                self._wait_for_room(attempt_id)
            react(self, attempt_id, frame, content)
            return
        # It may take long, and that the process is alive is heard meanwhile.
        fetch = partial(react, self, attempt_id, frame, content)
        threading.Thread(target=fetch, name="fetch", daemon=True).start()

    def _wait_for_room(self, attempt_id: str) -> None:
        """Hold a process back while too much waits to be heard; it is not silent by itself."""
        while not self._outbox.has_room(within_seconds=_TICK_SECONDS):
            self._outbox.beat(attempt_id)

    def _on_beat(self, attempt_id: str, frame: Frame, _content: bytes | None) -> None:
        self._outbox.beat(
            attempt_id,
            stood_still_seconds=frame["stood_still_seconds"],
            held_seconds=frame["held_seconds"],
        )

    def _on_report(self, attempt_id: str, frame: Frame, _content: bytes | None) -> None:
        waits = bool(frame.get("waits", False))
        # Where one file of many is at, the newest word says all.
        replaces = "progress" if frame["kind"] == "progress" else None
        self._outbox.add(
            Word(
                attempt_id,
                {"kind": frame["kind"]},
                report=frame["report"],
                urgent=waits,
                waits=waits,
                replaces=replaces,
            )
        )

    def _on_artifact(self, attempt_id: str, frame: Frame, content: bytes | None) -> None:
        assert content is not None
        item = {
            "kind": "artifact",
            "role": frame["role"],
            "sha256": hashlib.sha256(content).hexdigest(),
            "size": len(content),
        }
        replaces = f"artifact {frame['role']}"
        self._outbox.add(Word(attempt_id, item, content=content, replaces=replaces))

    def _on_end(self, attempt_id: str, frame: Frame, _content: bytes | None) -> None:
        # It goes with the word that the slot is free, which comes next and is urgent.
        self._outbox.add(Word(attempt_id, {"kind": "end"}, report=frame["report"]))

    def _on_fetch(self, attempt_id: str, frame: Frame, _content: bytes | None) -> None:
        answer: dict[str, Any] = {"kind": "fetched"}
        content = None
        try:
            content = self._fetched(
                lambda token: self._link.get_artifact(attempt_id, frame["role"], token=token),
                attempt_id,
            )
        except SearchError as error:
            answer["error"] = str(error)
        if content is not None:
            answer["size"] = len(content)
        self._slots.tell(attempt_id, answer, content)

    def _on_dataset(self, attempt_id: str, frame: Frame, _content: bytes | None) -> None:
        answer: dict[str, Any] = {"kind": "fetched"}
        try:
            answer["found"] = self._fetched(
                lambda token: self._link.get_dataset(
                    attempt_id, frame["id"], Path(frame["path"]), token=token
                ),
                attempt_id,
            )
        except SearchError as error:
            answer["error"] = str(error)
        self._slots.tell(attempt_id, answer)

    _reactions: Mapping[str, Callable[..., None]] = {
        "beat": _on_beat,
        "epoch": _on_report,
        "measurement": _on_report,
        "progress": _on_report,
        "artifact": _on_artifact,
        "end": _on_end,
        "fetch": _on_fetch,
        "dataset": _on_dataset,
    }

    def _fetched(self, fetch: Callable[[str], Any], attempt_id: str) -> Any:
        """Fetch something for an attempt, again and again while the service is away.

        Raises:
            SearchError: it is not given out.
        """
        pauses = _Pauses()
        until = time.monotonic() + GO_ON_SECONDS
        while True:
            with self._lock:
                # The service gives nothing to an attempt of which it does not know that it began.
                has_begun = self._lock.wait_for(
                    lambda: attempt_id not in self._offered_at or self._over.is_set(),
                    until - time.monotonic(),
                )
            if not has_begun:
                raise SearchError("the server does not answer")
            token = self._outbox.token(attempt_id)
            if token is None:
                raise SearchError("the attempt is over")
            try:
                return fetch(token)
            except NoAnswer as trouble:
                if time.monotonic() > until or self._over.is_set():
                    raise SearchError(f"the server does not answer: {trouble}") from trouble
                _log.warning("a file is asked for again", extra={"reason": trouble})
                self._over.wait(pauses.next())

    def _free(self, attempt_id: str, ended: Exit) -> None:
        """Say that an attempt's slot is free, after all that it has said."""
        with self._lock:
            tail = self._logs.pop(attempt_id, None)
            self._lock.notify_all()
        if tail is not None:
            self._say_log(attempt_id, tail)
        cause, detail = self._how(attempt_id, ended)
        item = {
            "kind": "exit",
            "returncode": ended.returncode,
            "signal": ended.signal,
            "detail": detail[:_LONGEST_DETAIL],
            "cause": cause.value,
        }
        self._outbox.add(Word(attempt_id, item, urgent=True), last=True)
        following = self._places.leave(attempt_id)
        if following is not None:
            self._begin(following)

    def _how(self, attempt_id: str, ended: Exit) -> tuple[AttemptCause, str]:
        """Tell what an attempt did itself from what befell it, see `search.running.losses`."""
        with self._lock:
            lost = self._lost.pop(attempt_id, None)
        if lost is not None:
            return lost
        if self._draining:
            return AttemptCause.MACHINE_STOPPED, ""
        return ended.cause, ended.detail

    def _say_log(self, attempt_id: str, tail: LogTail) -> None:
        grown = tail.grown()
        if grown is not None:
            item = {"kind": "log", "size": len(grown.content), "cut": grown.cut}
            self._outbox.add(Word(attempt_id, item, content=grown.content, replaces="log"))

    # What is reported.

    def _tell(self) -> None:
        """Say what there is to say, until it is all heard or the machine is over."""
        pauses = _Pauses()
        ticked = time.monotonic()
        while not self._over.is_set():
            self._outbox.wait(_TICK_SECONDS)
            if time.monotonic() - ticked >= _TICK_SECONDS:
                ticked = time.monotonic()
                self._tick()
            for word in self._outbox.large():
                self._uploads.submit(self._upload, word)
            batch = self._outbox.batch()
            if batch is None:
                continue
            try:
                synced = self._link.sync(batch.body)
            except NotTaken as refused:
                self._one_by_one(batch, refused)
                continue
            except (NoAnswer, MachineRefused) as trouble:
                # Who is refused has to join again, which the other thread does.
                _log.warning("the server takes no words", extra={"reason": trouble})
                self._over.wait(pauses.next())
                continue
            pauses.reset()
            self._heard_at = time.monotonic()
            self._answered(batch, synced)

    def _one_by_one(self, batch: Batch, refused: NotTaken) -> None:
        """Find the word for which the service does not take all others."""
        if len(batch.words) > 1:
            self._outbox.alone = len(batch.words)
            return
        self._outbox.alone = 0
        for word in batch.words:
            self._outbox.taken(batch, {})
            self._refused(
                Refusal(attempt=word.attempt, item=0, why="conflict", detail=str(refused))
            )

    def _answered(self, batch: Batch, synced: Synced) -> None:
        self._outbox.lease_seconds = synced.lease_seconds
        # Where each of a refused batch is taken alone, the batch itself was at fault.
        self._outbox.alone = max(0, self._outbox.alone - 1)
        by_place = {one.item: one for one in synced.refused if one.item is not None}
        for orders, pauses in ((synced.pause, True), (synced.stop, False)):
            for attempt_id, reason in orders.items():
                frame = {"kind": "stop", "reason": reason, "pauses": pauses}
                self._slots.tell(attempt_id, frame)
        for word in self._outbox.taken(batch, by_place):
            if word.waits:
                self._slots.tell(word.attempt, {"kind": "go_on"})
            if word.item["kind"] == "began":
                self._note_begun(word.attempt)
            if word.item["kind"] == "exit":
                self._forget(word.attempt)
        for refusal in synced.refused:
            if refusal.why != "full":
                self._refused(refusal)

    def _refused(self, refusal: Refusal) -> None:
        """An attempt's words are not taken any more: it is over, or has said what cannot be."""
        _log.warning(
            "words were refused",
            extra={
                "attempt_id": refusal.attempt,
                "why": refusal.why,
                "reason": refusal.detail,
            },
        )
        is_own = refusal.why == "conflict"
        cause = AttemptCause.EXITED if is_own else AttemptCause.LOST
        self._give_up(refusal.attempt, cause, refusal.detail if is_own else "its lease was over")

    def _give_up(self, attempt_id: str, cause: AttemptCause, why: str) -> None:
        with self._lock:
            if attempt_id in self._running and attempt_id in self._logs:
                self._lost[attempt_id] = (cause, why)
        self._outbox.drop(attempt_id)
        self._cancel(attempt_id, 0.0)

    def _forget(self, attempt_id: str) -> None:
        with self._lock:
            self._running.pop(attempt_id, None)
            self._ending.pop(attempt_id, None)
            self._offered_at.pop(attempt_id, None)
            self._lock.notify_all()

    def _note_begun(self, attempt_id: str) -> None:
        with self._lock:
            self._offered_at.pop(attempt_id, None)
            self._lock.notify_all()

    def _upload(self, word: Word) -> None:
        """Have a large file stored by a call of its own."""
        token = self._outbox.token(word.attempt)
        taken = False
        try:
            if token is not None and word.content is not None:
                role = str(word.item["role"])
                self._link.put_artifact(word.attempt, role, word.content, token=token)
            taken = True
        except NoAnswer as trouble:
            _log.warning("a file was not stored, trying again", extra={"reason": trouble})
        except NotTaken as refused:
            is_over = refused.is_over
            cause = AttemptCause.LOST if is_over else AttemptCause.EXITED
            _log.warning("a file was refused", extra={"reason": refused})
            self._give_up(word.attempt, cause, str(refused))
        self._outbox.uploaded(word, taken=taken)

    def _tick(self) -> None:
        """What is due now and then: logs that have grown, idle processes, a service long gone."""
        with self._lock:
            due = [(name, tail) for name, tail in self._logs.items() if tail.is_due()]
        for attempt_id in (*self._places.waiting(), *self._slots.waiting()):
            self._outbox.beat(attempt_id)
        for name, tail in due:
            self._say_log(name, tail)
        self._slots.retire_idle()
        if time.monotonic() - self._heard_at > GO_ON_SECONDS:
            with self._lock:
                running = tuple(self._running)
            for attempt_id in running:
                self._cancel(attempt_id, 0.0)

    def _wind_down(self) -> None:
        """Take nothing more, have what runs store where it is, and say that it ended."""
        with self._lock:
            self._draining = True
            running = tuple(self._running)
        # What waits first, or it would begin when the one before it has ended.
        for attempt_id in reversed(running):
            self._cancel(attempt_id, _STORE_SECONDS)
        if self._refusal is None:
            try:
                self._link.leave(self._join.session)
            except (NoAnswer, MachineRefused) as trouble:
                _log.warning("the server was not told of the end", extra={"reason": trouble})
        with self._lock:
            self._lock.wait_for(lambda: not self._logs, _STORE_SECONDS + _GOODBYE_SECONDS)
            if self._refusal is None:
                self._lock.wait_for(lambda: not self._running, _GOODBYE_SECONDS)


@final
class _Pauses:
    """Pauses that double, each with a random part, so that machines do not come back together."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._seconds = _FIRST_PAUSE_SECONDS

    def next(self) -> float:
        pause = self._seconds * random.uniform(0.5, 1.0)
        self._seconds = min(2 * self._seconds, _LONGEST_PAUSE_SECONDS)
        return pause
