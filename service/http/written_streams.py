"""Answers that are written while they are sent."""

from collections.abc import Generator, Mapping

from anyio import CancelScope, to_thread
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send


class WrittenStream(StreamingResponse):
    """What a generator yields; it is closed, and with it what it holds, when the client leaves.

    Left to the garbage collector, a generator that a cycle refers to keeps its files open.
    """

    def __init__(
        self,
        pieces: Generator[bytes] | Generator[str],
        *,
        media_type: str,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(pieces, media_type=media_type, headers=headers)
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all that comes."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            with CancelScope(shield=True):
                await to_thread.run_sync(self._pieces.close)
