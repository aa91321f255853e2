"""How large a body each route takes, and what is refused while it arrives.

A request that comes this far was let in by the gate. JSON is read here in full, since it is small,
and looked at before anything is made of it; files go on to their routes piece by piece, counted.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.routing import compile_path
from starlette.types import Message, Receive, Scope

from search.agents.protocol import MOST_JSON_BYTES, MOST_SLOTS, MOST_SYNC_BYTES, SYNC_TYPE
from service.http.json_scan import MOST_VALUES, JsonScan, NotPlainJson, NotText, TooDeep
from service.http.refusals import Reason, Refused
from service.http.request_watch import RequestCounters
from service.settings import Settings

_LOGIN_FORM = 1 << 16


@dataclass(frozen=True)
class Body:
    """What a route takes that does not take JSON of the usual size."""

    media_type: str
    limit: Callable[[Settings], int]
    most_values: int | None = None
    """Of a JSON document; null: the body is none, and goes on piece by piece."""


_JSON = "application/json"
# Each attempt on each slot of the largest machine, twice as many as there are, in eight words each.
_MACHINE = Body(_JSON, lambda settings: settings.max_spec_bytes, 2 * MOST_SLOTS * 8 + 16)
_UPLOAD = Body("multipart/form-data", lambda settings: settings.largest_upload)

BODIES: Mapping[tuple[str, str], Body] = {
    ("POST", "/v1/agents"): _MACHINE,
    ("POST", "/v1/agents/{machine_id}/poll"): _MACHINE,
    ("POST", "/v1/agents/{machine_id}/sync"): Body(
        SYNC_TYPE, lambda _settings: 4 + MOST_JSON_BYTES + MOST_SYNC_BYTES
    ),
    ("PUT", "/v1/agents/{machine_id}/attempts/{attempt_id}/artifacts/{role}"): Body(
        "application/octet-stream", lambda settings: settings.max_artifact_bytes
    ),
    ("POST", "/v1/datasets"): _UPLOAD,
    ("POST", "/datasets"): _UPLOAD,
    ("POST", "/v1/models"): _UPLOAD,
    ("POST", "/models"): _UPLOAD,
    ("POST", "/studies/new"): Body(
        "application/x-www-form-urlencoded", lambda settings: settings.max_spec_bytes
    ),
    ("POST", "/login"): Body("application/x-www-form-urlencoded", lambda _settings: _LOGIN_FORM),
}
"""Method and path of each route whose body is not a JSON document of the usual size."""

_USUAL = Body(_JSON, lambda settings: settings.max_spec_bytes, MOST_VALUES)
# Routes that read nothing.
_UNREAD = Body(_JSON, lambda settings: settings.max_spec_bytes)
_MAY_HAVE_JSON = frozenset({"POST", "PUT", "PATCH"})


class BodyLimits:
    """Refuses bodies that no route takes (413, 415, 400 or 422), as soon as that is known."""

    def __init__(self, settings: Settings, counters: RequestCounters) -> None:
        self._counters = counters
        self._settings = settings
        self._others = tuple(
            (method, compile_path(path)[0], body) for (method, path), body in BODIES.items()
        )

    async def taken(self, scope: Scope, headers: Headers, receive: Receive) -> Receive | None:
        """Where the body is read from; null where the client left in the middle of it.

        Raises:
            Refused: no route takes the body.
        """
        encoding = headers.get("content-encoding", "identity").strip().lower()
        if encoding != "identity":
            raise Refused(
                "body-encoded",
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                f"Content-Encoding is {encoding[:80]!r}; bodies are taken as they are (identity)",
                "encoded-body",
                "The body is encoded",
                {"Accept-Encoding": "identity"},
            )
        body = self._body_of(scope["method"], scope["path"])
        limit = body.limit(self._settings)
        declared = headers.get("content-length", "0")
        if declared.isdecimal() and int(declared[:20]) > limit:
            raise _too_large(limit)
        if body.most_values is None:
            return self._counted(receive, limit)
        content = await _read(receive, limit, JsonScan(most_values=body.most_values))
        return None if content is None else _replayed(content, receive)

    def _body_of(self, method: str, path: str) -> Body:
        for its_method, its_path, body in self._others:
            if method == its_method and its_path.match(path):
                return body
        return _USUAL if method in _MAY_HAVE_JSON else _UNREAD

    def _counted(self, receive: Receive, limit: int) -> Receive:
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > limit:
                refused = _too_large(limit)
                self._counters.refused(refused.reason)
                raise HTTPException(refused.status, refused.detail)
            return message

        return counted


async def _read(receive: Receive, limit: int, scan: JsonScan) -> bytes | None:
    received = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        piece: bytes = message.get("body", b"")
        received += len(piece)
        if received > limit:
            raise _too_large(limit)
        try:
            scan.feed(piece)
            if not message.get("more_body", False):
                return scan.end()
        except NotPlainJson as error:
            raise _not_plain(error) from error


def _replayed(body: bytes, receive: Receive) -> Receive:
    """A body that was read, and after it what else comes."""
    messages: list[dict[str, Any]] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return messages.pop() if messages else await receive()

    return replayed


def brings_body(headers: Headers) -> bool:
    """Whether a request has a body that is not empty, or may have one."""
    return "transfer-encoding" in headers or headers.get("content-length", "0").strip("0") != ""


def _too_large(limit: int) -> Refused:
    return Refused(
        "body-too-large",
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        f"the body is too large; at most {limit} bytes are taken here",
        "body-too-large",
        "The body is too large",
    )


_REASONS: Mapping[type[NotPlainJson], tuple[Reason, HTTPStatus]] = {
    NotText: ("body-not-text", HTTPStatus.BAD_REQUEST),
    TooDeep: ("body-too-deep", HTTPStatus.UNPROCESSABLE_ENTITY),
    NotPlainJson: ("body-not-plain", HTTPStatus.UNPROCESSABLE_ENTITY),
}


def _not_plain(error: NotPlainJson) -> Refused:
    reason, status = _REASONS[type(error)]
    return Refused(reason, status, str(error), "invalid-request", "The request is not valid")
