"""What holds for every request, whichever route answers it."""

import logging
from collections.abc import Mapping

from anyio import BrokenResourceError
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.http.request_watch import pass_route_on

_log = logging.getLogger(__name__)


class ListenersMayLeave:
    """Takes it for the end of a stream, and for no error, that its client has gone.

    FastAPI (0.165) raises out of a stream of events when the client goes while an event is sent.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        try:
            await self._app(scope, receive, send)
        except* BrokenResourceError:
            _log.debug("a listener left", extra={"path": scope.get("path")})


class HeadAsGet:
    """Answers HEAD as GET, without the body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on as GET and keep only the head of its answer."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        ended = False
        as_get = {**scope, "method": "GET"}

        async def head_only(message: Message) -> None:
            nonlocal ended
            if message["type"] == "http.response.start":
                pass_route_on(scope, as_get)
                await send(message)
            elif not ended:
                # Ending at the first piece tells a stream that nobody listens to it.
                ended = True
                await send({"type": "http.response.body", "body": b"", "more_body": False})

        await self._app(as_get, receive, head_only)


_HEADERS: Mapping[str, str] = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Our own pages' forms name their origin only where they may name a referrer.
    "Referrer-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Pages have policies of their own; what is none may load nothing when it is opened as one.
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    # What a key or a cookie opened is for nobody else; it may be kept and asked after anew.
    "Cache-Control": "private, no-cache",
}


class PlainHeaders:
    """Headers that every answer carries unless it says otherwise.

    No guessed types, no referrer elsewhere, no frame, nothing loaded, nothing shared.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on and add the headers to its answer."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, with_headers)
