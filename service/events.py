"""Event streams: one look at the database per process and moment, shared by all that listen.

A stream's place is a number within its study. The numbers have no gaps, so whoever reads on from a
number loses nothing and gets nothing twice, wherever the events come from: the poller's memory of
the newest ones, or the database for those further back.
"""

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass, field

from anyio import to_thread

from search.studies import ENDED
from storage.engine import Database
from storage.events import Events
from storage.keys import Keys
from storage.records import EventRecord
from storage.studies import Studies

_log = logging.getLogger(__name__)

_KEPT = 512
"""Events per study that are kept in memory for the streams that are up to date."""
_BATCH = 256
_KEYS_SECONDS = 1.0
"""How often the listeners' keys are looked at."""


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
        self._channels: dict[str, _Channel] = {}
        self._news = asyncio.Event()
        self._listened = asyncio.Event()
        self._closed = False
        self._keys: Counter[str | None] = Counter()
        self._revoked: set[str | None] = set()
        self._looked_at_keys = 0.0
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

    async def listen(
        self, study_id: str, *, after: int, key_id: str | None = None
    ) -> AsyncGenerator[EventRecord]:
        """The study's events after a number, until the study has ended or the server stops.

        The stream also ends when the API key of who listens is revoked, or, for the local user
        (null), when there is a key.
        """
        channel = await self._join(study_id)
        self._keys[key_id] += 1
        try:
            place = after
            while not self._closed and key_id not in self._revoked:
                news = self._news
                events = channel.after(place)
                if events is None:
                    events = await to_thread.run_sync(self._read, study_id, place)
                for event in events:
                    yield event
                    place = event.number
                if place >= channel.last:
                    if channel.ended:
                        return
                    await news.wait()
        finally:
            self._leave(study_id)
            self._keys[key_id] -= 1

    async def _join(self, study_id: str) -> _Channel:
        channel = self._channels.get(study_id)
        if channel is None:
            found = await to_thread.run_sync(self._open, study_id)
            channel = self._channels.setdefault(study_id, found)
        channel.listeners += 1
        self._listened.set()
        return channel

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
                await self._look_at_keys()
            except Exception:
                # The streams wait on; a database that is away for a moment must not end them.
                _log.exception("no new events could be read")
                found = {}
            self._take(found)
            await asyncio.sleep(self._interval)

    async def _look_at_keys(self) -> None:
        """Learn which of the listeners' keys open nothing any more, and end their streams."""
        if time.monotonic() - self._looked_at_keys < _KEYS_SECONDS:
            return
        self._looked_at_keys = time.monotonic()
        self._keys = +self._keys
        self._revoked = await to_thread.run_sync(self._revoked_ones, set(self._keys))
        if self._revoked:
            self._wake()

    def _revoked_ones(self, key_ids: set[str | None]) -> set[str | None]:
        with self._database.read() as session:
            keys = Keys(session)
            named = {key_id for key_id in key_ids if key_id is not None}
            revoked: set[str | None] = {*(named - keys.valid_ones(named))}
            if None in key_ids and keys.any_valid():
                revoked.add(None)
            return revoked

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
        with self._database.read() as session:
            study = Studies(session).get(study_id)
            return _Channel(last=study.last_event, ended=study.state in ENDED)

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


def _behind(known: dict[str, int], latest: Iterable[tuple[str, int]]) -> list[str]:
    return [study_id for study_id, number in latest if number > known[study_id]]
