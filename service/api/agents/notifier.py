"""Wakes the polls of agents that wait: one look at the database for all of a process."""

import asyncio
import logging
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass, field

from anyio import to_thread

from storage.engine import Database
from storage.errors import StorageError
from storage.fleet.machines import Machines

_log = logging.getLogger(__name__)

LOOK_SECONDS = 0.02
"""Between two looks at a database that does not tell of commits by itself."""
_PAUSE_SECONDS = 0.01
"""Between two looks at one that does: what comes close together is read once."""
_LONGEST_SECONDS = 0.25
"""After which one that does is looked at all the same."""


@dataclass(eq=False)
class _Waiting:
    machine_id: str
    changes: int
    notified: asyncio.Event = field(default_factory=asyncio.Event)


class AgentNotifier:
    """Looks for changes of the machines whose polls wait, and answers those polls."""

    def __init__(self, database: Database, *, interval: float = LOOK_SECONDS) -> None:
        self._database = database
        self._interval = interval
        self._changes = database.changes()
        self._seen: Hashable | None = None
        self._waiting: set[_Waiting] = set()
        self._someone = asyncio.Event()
        self._came = False
        """Whether somebody waits who has not been looked for."""
        self._notified = asyncio.Event()
        self._closed = False
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to look."""
        if (pipe := self._changes.fileno()) is not None:
            asyncio.get_running_loop().add_reader(pipe, self._drain)
        self._task = asyncio.create_task(self._run(), name="machine notifier")

    def close(self) -> None:
        """Answer all that wait, so that a server that stops need not wait for them."""
        self._closed = True
        for waiting in self._waiting:
            waiting.notified.set()

    async def stop(self) -> None:
        """Answer all that wait, and look no more."""
        self.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if (pipe := self._changes.fileno()) is not None:
            asyncio.get_running_loop().remove_reader(pipe)
        self._changes.close()

    async def wait(self, machine_id: str, *, changes: int, seconds: float) -> bool:
        """Wait until the machine's count is another; false when it is not by then."""
        if self._closed:
            return False
        waiting = _Waiting(machine_id, changes)
        self._waiting.add(waiting)
        self._came = True
        self._someone.set()
        self._notified.set()
        try:
            await asyncio.wait_for(waiting.notified.wait(), seconds)
        except TimeoutError:
            return False
        finally:
            self._waiting.discard(waiting)
            if not self._waiting:
                self._someone.clear()
        return not self._closed

    async def _run(self) -> None:
        while True:
            await self._someone.wait()
            await self._pause()
            if not await self._has_news():
                continue
            machine_ids = {waiting.machine_id for waiting in self._waiting}
            try:
                found = await to_thread.run_sync(self._counts, machine_ids)
            except StorageError as error:
                # The polls are answered when their time is over, and asked again.
                _log.warning("changes of machines cannot be read", extra={"reason": error})
                continue
            for waiting in self._waiting:
                # One that is gone has to hear so.
                if found.get(waiting.machine_id) != waiting.changes:
                    waiting.notified.set()

    def _drain(self) -> None:
        self._changes.drain()
        self._notified.set()

    async def _pause(self) -> None:
        """Wait until a look may find something."""
        if self._changes.fileno() is None:
            await asyncio.sleep(self._interval)
            return
        await asyncio.sleep(_PAUSE_SECONDS)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._notified.wait(), _LONGEST_SECONDS)
        self._notified.clear()

    async def _has_news(self) -> bool:
        """Whether anything was written since the last look, or somebody came to wait."""
        look = self._changes.look
        seen = await to_thread.run_sync(look) if self._changes.waits else look()
        news = seen is None or seen != self._seen or self._came
        self._seen, self._came = seen, False
        return news

    def _counts(self, machine_ids: set[str]) -> dict[str, int]:
        with self._database.read() as session:
            return Machines(session).changes(machine_ids)
