"""What every request is seen by: its id, one line of the access log, and the counters."""

import logging
import re
import secrets
import time
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from search.logs import bind_for_good
from service.http.refusals import Reason

_log = logging.getLogger("service.access")

REQUEST_ID = "X-Request-ID"
_SANE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_FILES = ("multipart/form-data", "application/octet-stream")
_NO_ROUTE = "none"
_IDS = {"study_id": "study_id", "number": "trial", "attempt_id": "attempt_id"}
"""Parts of a path that the log names, and how."""


@dataclass(frozen=True)
class RequestSeen:
    """A request as far as its answer's head."""

    method: str
    """`OTHER` for one that nobody here knows."""
    route: str
    """The path's template, such as `/v1/studies/{study_id}`; never what the client wrote."""
    status: int | None
    """Null: the client left before."""
    seconds: float


class RequestCounters(Protocol):
    """Who counts requests."""

    def begun(self, *, brings_file: bool) -> None:
        """A request came in."""
        ...

    def over(self, *, brings_file: bool) -> None:
        """A request is over, one way or another."""
        ...

    def answered(self, seen: RequestSeen) -> None:
        """The head of an answer went out, or nobody is there any more to take it."""
        ...

    def refused(self, reason: Reason) -> None:
        """A request was turned away before a route saw it."""
        ...


class RequestWatch:
    """Gives each request an id, counts it, and logs it where that is wished.

    The id is the client's own `X-Request-ID` if that is a plain word. It is returned with the
    answer, and stands in every line that is logged meanwhile.
    """

    def __init__(self, app: ASGIApp, *, counters: RequestCounters, access_log: bool) -> None:
        self._app = app
        self._counters = counters
        self._access_log = access_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        headers = Headers(scope=scope)
        request_id = _request_id(headers)
        scope[REQUEST_ID] = request_id
        # Each request is a task of its own, with a context that ends with it: what the server says
        # of an error after this call still has the id.
        bind_for_good(request_id=request_id)
        status: int | None = None
        brings_file = headers.get("content-type", "").startswith(_FILES)

        async def seen_by_us(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[REQUEST_ID] = request_id
                status = message["status"]
                self._seen(scope, status, time.perf_counter() - began)
            await send(message)

        self._counters.begun(brings_file=brings_file)
        try:
            await self._app(scope, receive, seen_by_us)
        except Exception:
            # The server answers 500, further out than this.
            status = status or self._seen(scope, 500, time.perf_counter() - began)
            raise
        finally:
            if status is None:
                self._seen(scope, None, time.perf_counter() - began)
            self._counters.over(brings_file=brings_file)

    def _seen(self, scope: Scope, status: int | None, seconds: float) -> int | None:
        method = scope["method"] if scope["method"] in _METHODS else "OTHER"
        seen = RequestSeen(method, _route_of(scope), status, seconds)
        self._counters.answered(seen)
        if self._access_log:
            fields = {
                "method": method,
                # Without its query, which may hold what is nobody's business.
                "path": scope["path"],
                "status": status,
                "seconds": round(seconds, 4),
                "client": (scope.get("client") or ("unix socket",))[0],
                **ids_of(scope),
            }
            _log.info("request", extra=fields)
        return status


def ids_of(scope: Mapping[str, Any]) -> dict[str, str]:
    """What a request's path names, as the log's fields."""
    named: Mapping[str, Any] = scope.get("path_params") or {}
    return {field: str(named[part]) for part, field in _IDS.items() if part in named}


def pass_route_on(scope: MutableMapping[str, Any], inner: Mapping[str, Any]) -> None:
    """Tell the scope of a request where the copy of it was routed to."""
    for part in ("route", "path_params", "root_path", "app_root_path"):
        if part in inner:
            scope[part] = inner[part]


def _request_id(headers: Headers) -> str:
    given = headers.get(REQUEST_ID, "")
    return given if _SANE_ID.fullmatch(given) else secrets.token_hex(8)


def _route_of(scope: Scope) -> str:
    """The template of the route that took the request; mounted files have their mount's."""
    path = getattr(scope.get("route"), "path", None)
    if isinstance(path, str):
        return path
    # A mount names no route, but says how much of the path it took.
    return scope["root_path"] if scope.get("root_path") and "app_root_path" in scope else _NO_ROUTE
