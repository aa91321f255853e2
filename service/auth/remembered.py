"""What an API process looked up in the database, remembered for a moment."""

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TypeVar, cast

from anyio import to_thread

_T = TypeVar("_T")

_MOST = 1024


class Remembered:
    """Answers that are good for `seconds`. A null is never remembered."""

    def __init__(self, *, seconds: float) -> None:
        self._seconds = seconds
        self._known: OrderedDict[Hashable, tuple[float, object]] = OrderedDict()
        self._forgotten = 0

    async def get(self, what: Hashable, look: Callable[[], _T]) -> _T:
        """What `look` finds, called in a thread unless its last answer is still good."""
        known = self._known.get(what)
        if known is not None and time.monotonic() < known[0]:
            return cast(_T, known[1])
        began, forgotten = time.monotonic(), self._forgotten
        found = await to_thread.run_sync(look)
        # What is not there is not remembered: a new key acts at once, and guesses take no room.
        self._known.pop(what, None)
        # What was read before something changed here must not outlive the change.
        if found is not None and forgotten == self._forgotten:
            self._known[what] = (began + self._seconds, found)
            if len(self._known) > _MOST:
                self._known.popitem(last=False)
        return found

    def knows(self, what: Hashable) -> bool:
        """Whether an answer is here that is still good; looks nothing up."""
        known = self._known.get(what)
        return known is not None and time.monotonic() < known[0]

    def forget(self) -> None:
        """Look everything up again, for something has changed."""
        self._forgotten += 1
        self._known.clear()
