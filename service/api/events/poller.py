"""Event streams: one look at the database per process and moment, shared by all that listen.

A stream's place is a number within its study. The numbers have no gaps, so one who reads on from a
number loses nothing and gets nothing twice, wherever the events come from: the poller's memory of
the newest ones, or the database for those further back.
"""

import asyncio
import json
import logging
import time
from asyncio import timeout
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncGenerator, Hashable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import NamedTuple

from anyio import to_thread
from fastapi.sse import format_sse_event

from search.studies.states import ENDED
from service.api.events.shared_looks import SharedLooks
from storage.accounts.browser_sessions import BrowserSessions
from storage.accounts.keys import Keys
from storage.engine import Database
from storage.records import EventRecord
from storage.repositories.events import Events
from storage.repositories.studies import Studies

_log = logging.getLogger(__name__)

_KEPT = 512
"""Events per study that are kept in memory for the streams that are up to date."""
_BATCH = 256
_OPENINGS = 64
"""Beginnings of streams that are kept for the next who listen."""
_LOOKS_AT_ONCE = 2
"""Threads that open streams: however many are opened, other requests have all of theirs."""
_ASKERS_SECONDS = 1.0
"""How often the listeners' keys and sessions are looked at."""


class Asker(NamedTuple):
    """Who listens: by which key, and in which browser's session; the local user by neither."""

    key_id: str | None
    browser: str | None


NOBODY = Asker(None, None)
"""The local user."""


@dataclass
class _Channel:
    """What the poller knows of one study that somebody listens to."""

    last: int
    ended: bool
    listeners: int = 0
    newest: deque[EventRecord] = field(default_factory=lambda: deque[EventRecord](maxlen=_KEPT))

    def after(self, number: int) -> list[EventRecord] | None:
        """The events after a number, or null when the memory does not reach back to it."""
        if number >= self.last:
            return []
        if not self.newest or self.newest[0].number > number + 1:
            return None
        return [event for event in self.newest if event.number > number]


class EventPoller:
    """Looks for new events of the studies that somebody listens to."""

    def __init__(self, database: Database, *, interval: float) -> None:
        self._database = database
        self._interval = interval
        self._looks = SharedLooks(at_once=_LOOKS_AT_ONCE)
        self._channels: dict[str, _Channel] = {}
        self._news = asyncio.Event()
        self._listened = asyncio.Event()
        self._closed = False
        self._changes = database.changes()
        # What streams began with lately, and the state of the database from before it was read.
        self._openings: OrderedDict[Hashable, tuple[Hashable, Opening]] = OrderedDict()
        self._askers: Counter[Asker] = Counter()
        self._ended: set[Asker] = set()
        self._looked_at_askers = 0.0
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to look; at most one look is under way at a time."""
        self._task = asyncio.create_task(self._run(), name="event poller")

    @property
    def streams(self) -> int:
        """How many streams are open."""
        return sum(channel.listeners for channel in self._channels.values())

    def close_streams(self) -> None:
        """End every stream now, so that a server that stops need not wait for its listeners."""
        self._closed = True
        self._wake()

    async def stop(self) -> None:
        """End every stream and look no more."""
        self.close_streams()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._changes.close()

    async def opening(
        self, database: Database, tenant: str, study_id: str, after: int
    ) -> "Opening":
        """A study as it is now and its first events after a number, as its tenant has it.

        Raises:
            NotFound: there is no such study.
        """
        key = (tenant, study_id, after)
        state = None if self._changes.waits else self._changes.look()
        made_of, known = self._openings.get(key, (None, None))
        if known is not None and state is not None and made_of == state:
            self._openings.move_to_end(key)
            return known
        found = await self._looks.look(
            ("opening", *key), lambda: _opening(database, study_id, after)
        )
        self._openings[key] = (state, found)
        if len(self._openings) > _OPENINGS:
            self._openings.popitem(last=False)
        return found

    async def listen(
        self, study_id: str, *, after: int, asker: Asker = NOBODY
    ) -> AsyncGenerator[EventRecord]:
        """The events of `batches`, one by one."""
        async with aclosing(self.batches(study_id, after=after, asker=asker)) as batches:
            async for events in batches:
                for event in events:
                    yield event

    async def batches(
        self,
        study_id: str,
        *,
        after: int,
        asker: Asker = NOBODY,
        opening: "Opening | None" = None,
        idle_seconds: float | None = None,
    ) -> AsyncGenerator[Sequence[EventRecord]]:
        """The study's events after a number, until the study has ended or the server stops.

        The stream also ends with the API key of who listens, with the session of the browser (its
        digest) where one listens, and for the local user (null) when there is a key.

        Args:
            study_id: the study.
            after: the number.
            asker: who listens.
            opening: what was found of the study just now, with its events after that number.
            idle_seconds: after so many seconds without an event there is a batch without any.
        """
        channel = await self._join(study_id, opening)
        self._askers[asker] += 1
        try:
            place = after
            if opening is not None and opening.events:
                yield opening.events
                place = opening.events[-1].number
            while not self._closed and asker not in self._ended:
                news = self._news
                events = channel.after(place)
                if events is None:
                    events = await self._older(study_id, place)
                if events:
                    yield events
                    place = events[-1].number
                if place >= channel.last:
                    if channel.ended:
                        return
                    try:
                        async with timeout(idle_seconds):
                            await news.wait()
                    except TimeoutError:
                        yield ()
        finally:
            self._leave(study_id)
            self._askers[asker] -= 1

    async def _join(self, study_id: str, opening: "Opening | None") -> _Channel:
        channel = self._channels.get(study_id)
        if channel is None and opening is not None:
            channel = self._channels[study_id] = _Channel(opening.last_event, opening.ended)
        if channel is None:
            found = await self._looks.look(("open", study_id), lambda: self._open(study_id))
            channel = self._channels.setdefault(study_id, found)
        channel.listeners += 1
        self._listened.set()
        return channel

    async def _older(self, study_id: str, place: int) -> list[EventRecord]:
        return await self._looks.look(
            ("events", study_id, place), lambda: self._read(study_id, place)
        )

    def _leave(self, study_id: str) -> None:
        channel = self._channels[study_id]
        channel.listeners -= 1
        if channel.listeners == 0:
            del self._channels[study_id]
            if not self._channels:
                self._listened.clear()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def _run(self) -> None:
        while True:
            await self._listened.wait()
            known = {study_id: channel.last for study_id, channel in self._channels.items()}
            try:
                found = await to_thread.run_sync(self._look, known)
                await self._look_at_askers()
            except Exception:
                # The streams wait on; a database that is away for a moment must not end them.
                _log.exception("no new events could be read")
                found = {}
            self._take(found)
            await asyncio.sleep(self._interval)

    async def _look_at_askers(self) -> None:
        """Learn which listeners' keys and sessions have ended, and end their streams."""
        if time.monotonic() - self._looked_at_askers < _ASKERS_SECONDS:
            return
        self._looked_at_askers = time.monotonic()
        self._askers = +self._askers
        self._ended = await to_thread.run_sync(self._ended_ones, set(self._askers))
        if self._ended:
            self._wake()

    def _ended_ones(self, askers: set[Asker]) -> set[Asker]:
        now = datetime.now(UTC)
        key_ids = {asker.key_id for asker in askers if asker.key_id is not None}
        digests = {asker.browser for asker in askers if asker.browser is not None}
        with self._database.read() as session:
            keys: set[str | None] = {*Keys(session).valid_ones(key_ids, at=now)}
            browsers: set[str | None] = {*BrowserSessions(session).valid_ones(digests, at=now)}
            if not Keys(session).any():
                keys.add(None)
        browsers.add(None)
        return {
            asker for asker in askers if asker.key_id not in keys or asker.browser not in browsers
        }

    def _take(self, found: dict[str, tuple[list[EventRecord], bool]]) -> None:
        for study_id, (events, ended) in found.items():
            channel = self._channels.get(study_id)
            # Nobody may listen any more, or a channel of the same study may have been opened anew.
            if channel is None or not events or events[0].number != channel.last + 1:
                continue
            channel.newest.extend(events)
            channel.last = events[-1].number
            channel.ended = ended
        if found:
            self._wake()

    def _open(self, study_id: str) -> _Channel:
        found = _opening(self._database, study_id, None)
        return _Channel(found.last_event, found.ended)

    def _read(self, study_id: str, after: int) -> list[EventRecord]:
        with self._database.read() as session:
            return Events(session).after(study_id, after, _BATCH)

    def _look(self, known: dict[str, int]) -> dict[str, tuple[list[EventRecord], bool]]:
        """The new events of each study that has any, and whether they end it."""
        with self._database.read() as session:
            latest = Events(session).latest(list(known))
            behind = _behind(known, latest.items())
            found: dict[str, tuple[list[EventRecord], bool]] = {}
            for study_id in behind:
                events = Events(session).after(study_id, known[study_id], _BATCH)
                study = Studies(session).get(study_id)
                whole = bool(events) and events[-1].number == study.last_event
                found[study_id] = (events, whole and study.state in ENDED)
            return found


@dataclass(frozen=True)
class Opening:
    """A study as a stream of its events begins."""

    last_event: int
    ended: bool
    events: Sequence[EventRecord]
    """The first of those that the stream begins with."""

    @cached_property
    def written(self) -> bytes:
        """Those events as a stream sends them."""
        return written(self.events)


def written(events: Iterable[EventRecord]) -> bytes:
    """Events as a stream sends them."""
    return b"".join(
        format_sse_event(
            data_str=json.dumps({**event.payload, "at": event.created_at.isoformat()}),
            event=event.kind,
            id=str(event.number),
        )
        for event in events
    )


def _opening(database: Database, study_id: str, after: int | None) -> Opening:
    with database.read() as session:
        last_event, state = Studies(session).place(study_id)
        events: Sequence[EventRecord] = ()
        if after is not None and after < last_event:
            events = Events(session).after(study_id, after, _BATCH)
        return Opening(last_event, state in ENDED, events)


def _behind(known: dict[str, int], latest: Iterable[tuple[str, int]]) -> list[str]:
    return [study_id for study_id, number in latest if number > known[study_id]]
