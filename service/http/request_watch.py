"""What every request is seen by: its id, its route's name, and the counters.

The id is returned with the answer, and stands in every line that is logged meanwhile.
"""

import re
import secrets
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.datastructures import Headers
from starlette.types import Scope

from service.http.refusals import Reason

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


def known_method(method: str) -> str:
    """The method, or `OTHER` for one that nobody here knows."""
    return method if method in _METHODS else "OTHER"


def brings_file(headers: Headers) -> bool:
    """Whether a request is an upload."""
    return headers.get("content-type", "").startswith(_FILES)


def ids_of(scope: Mapping[str, Any]) -> dict[str, str]:
    """What a request's path names, as the log's fields."""
    named: Mapping[str, Any] = scope.get("path_params") or {}
    return {field: str(named[part]) for part, field in _IDS.items() if part in named}


def pass_route_on(scope: MutableMapping[str, Any], inner: Mapping[str, Any]) -> None:
    """Tell the scope of a request where the copy of it was routed to."""
    for part in ("route", "path_params", "root_path", "app_root_path"):
        if part in inner:
            scope[part] = inner[part]


def id_of(headers: Headers) -> str:
    """The request's id: the client's own `X-Request-ID` if that is a plain word."""
    given = headers.get(REQUEST_ID, "")
    return given if _SANE_ID.fullmatch(given) else secrets.token_hex(8)


def route_of(scope: Scope) -> str:
    """The template of the route that took the request; mounted files have their mount's."""
    path = getattr(scope.get("route"), "path", None)
    if isinstance(path, str):
        return path
    # A mount names no route, but says how much of the path it took.
    return scope["root_path"] if scope.get("root_path") and "app_root_path" in scope else _NO_ROUTE
