"""Ends of attempts on their way from whoever notices them to whoever asks."""

import contextlib
import queue
from collections.abc import Sequence
from typing import final

from search.agents.executor import Exit


@final
class Exits:
    """Takes each end once, from any thread, and gives it away once."""

    def __init__(self) -> None:
        # No `SimpleQueue`: in Python 3.11 its `get` never returns when a signal is handled while
        # its time runs out, and a signal is how whoever polls is told to end.
        self._queue = queue.Queue[Exit]()

    def put(self, ended: Exit) -> None:
        """Tell an end."""
        self._queue.put(ended)

    def poll(self, timeout_seconds: float) -> Sequence[Exit]:
        """Return what ended since the last call; waits up to the timeout for a first one."""
        exits: list[Exit] = []
        with contextlib.suppress(queue.Empty):
            exits.append(self._queue.get(timeout=timeout_seconds))
            while True:
                exits.append(self._queue.get_nowait())
        return exits
