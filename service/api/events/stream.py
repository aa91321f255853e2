"""The body of a stream of events, as it goes out.

A batch of events is written in one piece. FastAPI's own stream takes three tasks and two queues
for each listener, and a model for each event.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Final, final

from fastapi.sse import KEEPALIVE_COMMENT
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from service.api.events.poller import Asker, EventPoller, Opening, written
from service.auth.principal import Principal
from storage.records import EventRecord

PING_SECONDS: Final = 15.0
"""After so long without an event something is sent all the same, so that no proxy gives up."""


@final
class EventStream(Response):
    """Sends events as they come, until there are no more or the client leaves."""

    media_type = "text/event-stream"

    def __init__(
        self,
        batches: AsyncGenerator[Sequence[EventRecord]],
        opening: Opening,
        status_code: int = 200,
    ) -> None:
        """Send these batches, of which `opening` has the first one."""
        super().__init__(
            status_code=status_code,
            headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"},
        )
        del self.headers["content-length"]
        self._batches = batches
        self._opening = opening

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI
        """Answer."""
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )
        sending = asyncio.create_task(self._send_all(send))
        leaving = asyncio.create_task(_until_gone(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            # What it waits for is over when it hears of its end.
            sending.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)
        if not sending.cancelled():
            sending.result()

    async def _send_all(self, send: Send) -> None:
        try:
            async for events in self._batches:
                is_opening = events is self._opening.events
                piece = self._opening.written if is_opening else written(events)
                piece = piece or KEEPALIVE_COMMENT
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        finally:
            await self._batches.aclose()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def stream_of(
    poller: EventPoller, study_id: str, asker: Principal, *, after: int, opening: Opening
) -> EventStream:
    """A study's events after a number, as they go out."""
    batches = poller.batches(
        study_id,
        after=after,
        asker=Asker(asker.key_id, asker.session),
        opening=opening,
        idle_seconds=PING_SECONDS,
    )
    return EventStream(batches, opening)


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
