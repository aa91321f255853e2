"""Looks into the database that many wait for at once, and that are made once for all of them."""

import asyncio
from collections.abc import Callable, Hashable
from typing import Any, TypeVar, final

from anyio import CapacityLimiter, to_thread

_T = TypeVar("_T")


@final
class SharedLooks:
    """Runs looks in threads of its own, so that other requests never wait behind them.

    A caller that asks while a look is under way waits for the next one: what it learns is never
    older than its question.
    """

    def __init__(self, *, at_once: int) -> None:
        self._turns = asyncio.Semaphore(at_once)
        self._threads = CapacityLimiter(at_once)
        self._waiting: dict[Hashable, asyncio.Task[Any]] = {}

    async def look(self, what: Hashable, look: Callable[[], _T]) -> _T:
        """The answer of `look`, or of another look for the same `what` that begins after now."""
        waiting = self._waiting.get(what)
        if waiting is None:
            waiting = self._waiting[what] = asyncio.create_task(self._make(what, look))
            waiting.add_done_callback(_heed)
        # One who leaves must not take the answer from the others.
        return await asyncio.shield(waiting)

    async def _make(self, what: Hashable, look: Callable[[], _T]) -> _T:
        async with self._turns:
            del self._waiting[what]
            return await to_thread.run_sync(look, limiter=self._threads)


def _heed(task: asyncio.Task[Any]) -> None:
    """Nobody may be left to hear of an error, which is no news for the log."""
    if not task.cancelled():
        task.exception()
