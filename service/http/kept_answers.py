"""Answers kept as bytes, and given out again for as long as nothing in the database has changed.

A route says by `KEPT` that its answer follows from the path, the query, the tenant and the
database alone. What it answers is then kept beside the state of the database from before it read
anything: the next request for the same is answered without any route, if the database still is in
that state. So an answer is never older than the question, whichever process has changed something.
"""

import hashlib
from asyncio import Future, get_running_loop
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Annotated, Final, final

from anyio import to_thread
from fastapi import Depends, Request

from service.http.entity_tags import IfNoneMatch
from storage.changes import Looks

_MOST_BYTES: Final = 64 << 20
_LARGEST: Final = 4 << 20
_OVERHEAD: Final = 1024
"""About what an answer takes beside its body."""

Headers = tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True)
class KeptAnswer:
    """A whole answer, with status 200."""

    state: Hashable
    """That of the database which it was made of."""
    headers: Headers
    body: bytes
    tag: str
    """Its entity tag, quoted."""
    route: object
    """Which one made it, for the log and the counters."""
    path_params: dict[str, object]


@dataclass
class Keeping:
    """How a route that is at work wants its answer to be kept."""

    state: Hashable | None
    """Null: it is not to be kept."""

    def stop(self) -> None:
        """Do not keep this one: it follows from something else as well, such as the time."""
        self.state = None


@final
class KeptAnswers:
    """What one process keeps, the answers that were asked for last; used by one event loop."""

    def __init__(self, changes: Looks, *, most_bytes: int = _MOST_BYTES) -> None:
        self._changes = changes
        self._most_bytes = most_bytes
        self._bytes = 0
        self._known: OrderedDict[Hashable, KeptAnswer] = OrderedDict()
        self._making: dict[Hashable, tuple[Hashable, Future[KeptAnswer | None]]] = {}

    async def state(self) -> Hashable | None:
        """In which state the database is; null where it does not tell."""
        if self._changes.waits:
            return await to_thread.run_sync(self._changes.look)
        return self._changes.look()

    def knows(self, key: Hashable) -> bool:
        """Whether there is an answer, which may be out of date."""
        return key in self._known

    def get(self, key: Hashable, state: Hashable | None) -> KeptAnswer | None:
        """The answer that was made of this very state."""
        known = self._known.get(key)
        if known is None or state is None or known.state != state:
            return None
        self._known.move_to_end(key)
        return known

    def making(self, key: Hashable, state: Hashable | None) -> Future[KeptAnswer | None] | None:
        """The answer that is being made since the database has been in this very state."""
        made_of, making = self._making.get(key, (None, None))
        return making if state is not None and made_of == state else None

    def begin(self, key: Hashable, state: Hashable | None) -> Future[KeptAnswer | None]:
        """An answer is made from now on; its maker calls `end`, also where it fails."""
        making = get_running_loop().create_future()
        self._making[key] = (state, making)
        return making

    def end(
        self, key: Hashable, making: Future[KeptAnswer | None], answer: KeptAnswer | None
    ) -> None:
        """Tell those who wait for an answer what it is; null: nothing that can be given to them."""
        if not making.done():
            making.set_result(answer)
        if self._making.get(key, (None, None))[1] is making:
            del self._making[key]

    def put(self, key: Hashable, answer: KeptAnswer) -> None:
        """Keep an answer in place of an earlier one."""
        self._forget(key)
        if len(answer.body) > _LARGEST:
            return
        self._known[key] = answer
        self._bytes += len(answer.body) + _OVERHEAD
        while self._bytes > self._most_bytes:
            self._forget(next(iter(self._known)))

    def close(self) -> None:
        """Forget everything, and give the connection back."""
        self._known.clear()
        self._bytes = 0
        self._changes.close()

    def _forget(self, key: Hashable) -> None:
        gone = self._known.pop(key, None)
        if gone is not None:
            self._bytes -= len(gone.body) + _OVERHEAD


def tag_of_bytes(body: bytes) -> str:
    """The entity tag of an answer that is known by its bytes alone."""
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'


async def _kept(request: Request, if_none_match: IfNoneMatch = None) -> Keeping:  # noqa: ARG001 - it is answered further out, and documented here
    keeping = request.state.keeping = Keeping(await request.app.state.kept.state())
    return keeping


Kept = Annotated[Keeping, Depends(_kept)]
"""In a route: its answer is kept. It stands before all that reads rows."""
