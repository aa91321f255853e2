"""How many requests are under way at once in an API process, and how many begin at a time."""

import asyncio

from starlette.types import ASGIApp, Receive, Scope, Send

from service.auth.origins import is_by_unix_socket
from service.http.problems import problem_response
from service.http.request_watch import RequestCounters

_BEGIN_AT_ONCE = 4
_ALWAYS = frozenset({"/healthz", "/readyz"})


class RequestsAtOnce:
    """Answers 503 to requests beyond a number at once; streams that are open count.

    Those that come in all at once begin a few at a time, so that a probe among them, or another
    request that goes on, waits for a few and not for all of them.
    """

    def __init__(self, app: ASGIApp, *, most: int, counters: RequestCounters) -> None:
        self._app = app
        self._most = most
        self._counters = counters
        self._running = 0
        self._beginnings = asyncio.Semaphore(_BEGIN_AT_ONCE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it; probes and own attempts always pass."""
        if scope["type"] != "http" or scope["path"] in _ALWAYS or is_by_unix_socket(scope):
            await self._app(scope, receive, send)
            return
        if self._running >= self._most:
            self._counters.refused("requests-at-once")
            detail = f"{self._most} requests are under way, as many as are taken at once"
            response = problem_response(503, detail, headers={"Retry-After": "1"})
            await response(scope, receive, send)
            return
        self._running += 1
        try:
            async with self._beginnings:
                await asyncio.sleep(0)
            await self._app(scope, receive, send)
        finally:
            self._running -= 1
