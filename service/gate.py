"""Who is let in: whoever shows a key, a browser that logged in with one, or the local user.

The local user is let in while no key exists, on a server that only loopback reaches, by the rules
of `service.auth`. What a request may do follows from its method, and for a few paths from the path.
Whoever is let in becomes `request.state.principal`, which is null for what is open to all.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import quote

from starlette.datastructures import Headers
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as Request

from service.auth import (
    SAFE_METHODS,
    is_loopback,
    peer_of,
    scheme_of,
    why_foreign,
    why_not_local,
)
from service.cookies import LoginCookies
from service.errors import problem_of
from service.keyring import KeyRing
from service.principal import LOCAL_USER, WORK, Principal, Scope, principal_of
from service.problems import problem_response
from service.rate_limits import RateLimits
from storage.errors import StorageError

_log = logging.getLogger(__name__)

_BEARER = "bearer "
_NEEDED = "an API key is needed, as `Authorization: Bearer <key>`; people log in with one at /login"


@dataclass(frozen=True, kw_only=True)
class Doors:
    """Which paths are guarded otherwise than all others."""

    exempt: tuple[str, ...] = ()
    """Prefixes of paths that carry a credential of their own, and are passed on as they are."""
    open: tuple[str, ...] = ()
    """Paths that are open to all, and prefixes (with a `/` at their end) of such paths."""
    loopback: tuple[str, ...] = ()
    """Paths that are read without a key by whoever speaks from this machine to it."""
    admin: tuple[str, ...] = ()
    """Paths that need `admin`, with all below them."""
    work: tuple[str, ...] = ()
    """Paths of worker machines, with all below them: `admin` to read, `work` for all else."""


@dataclass(frozen=True, kw_only=True)
class Guard:
    """What the gate looks into; held by the running application."""

    keyring: KeyRing
    cookies: LoginCookies
    rates: RateLimits
    admits_local_user: bool
    """Whether only loopback reaches the server."""


@dataclass(eq=False)
class _Refused(Exception):
    """A request that is answered here."""

    status: HTTPStatus
    detail: str
    kind: str
    title: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


class Gate:
    """Lets requests in, each with its principal, and answers 401, 403 or 429 to the others."""

    def __init__(self, app: ASGIApp, *, doors: Doors) -> None:
        self._app = app
        self._doors = doors
        self._said = False

    async def __call__(self, scope: Request, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http" or scope["path"].startswith(self._doors.exempt):
            await self._app(scope, receive, send)
            return
        response: Response
        try:
            principal = await self._principal(scope, Headers(scope=scope))
        except StorageError as error:
            response = problem_of(error)
        except _Refused as refused:
            response = _answer(scope, refused)
        else:
            scope.setdefault("state", {})["principal"] = principal
            await self._app(scope, receive, send)
            return
        await response(scope, receive, send)

    async def _principal(self, scope: Request, headers: Headers) -> Principal | None:
        guard: Guard = scope["app"].state.guard
        method, path = scope["method"], scope["path"]
        if _is_among(path, self._doors.open):
            foreign = why_foreign(headers, scheme=scheme_of(scope, headers))
            if method not in SAFE_METHODS and foreign is not None:
                raise _foreign(foreign)
            return None
        principal = (
            await _by_key(guard, scope, headers)
            or await _by_cookie(guard, scope, headers)
            or await self._local_user(guard, scope, headers)
        )
        needed = self._needed(method, path)
        if needed not in principal.scopes:
            raise _Refused(
                HTTPStatus.FORBIDDEN,
                f"this needs the scope {needed!r}; {principal.label} has "
                f"{', '.join(principal.scopes) or 'none'}",
                "scope",
                "The key does not allow this",
            )
        # Machines ask as often as something starts and ends there, however many share a key.
        if principal.key_id is not None and needed != WORK:
            _wait_if(guard.rates.request(principal.key_id), f"{principal.label} asks too much")
        return principal

    def _needed(self, method: str, path: str) -> Scope:
        if _is_below(path, self._doors.work):
            return "admin" if method in SAFE_METHODS else WORK
        if _is_below(path, self._doors.admin):
            return "admin"
        return "read" if method in SAFE_METHODS else "write"

    async def _local_user(self, guard: Guard, scope: Request, headers: Headers) -> Principal:
        not_local = why_not_local(scope["method"], headers)
        from_here = guard.admits_local_user or is_loopback(peer_of(scope))
        # Asked before the database, which may be away, and these may tell that it is.
        if scope["path"] in self._doors.loopback and from_here and not_local is None:
            return LOCAL_USER
        if not (guard.admits_local_user and await guard.keyring.is_empty()):
            raise _unknown(_NEEDED)
        if not_local is not None:
            raise _Refused(
                HTTPStatus.FORBIDDEN, not_local, "not-local", "Only the local user is let in"
            )
        if not self._said:
            self._said = True
            _log.info("no keys exist: the local user is let in, over loopback only")
        return LOCAL_USER


async def _by_key(guard: Guard, scope: Request, headers: Headers) -> Principal | None:
    shown = headers.get("authorization", "")
    if not shown.lower().startswith(_BEARER):
        return None
    key = await guard.keyring.find(shown[len(_BEARER) :].strip())
    if key is None:
        _log.warning("a wrong key was shown", extra={"address": peer_of(scope)})
        _wait_if(guard.rates.refusal(peer_of(scope)), "too many wrong keys came from this address")
        raise _unknown("the key is not known here, or was revoked")
    return principal_of(key, via="key")


async def _by_cookie(guard: Guard, scope: Request, headers: Headers) -> Principal | None:
    key_id = guard.cookies.key_id(headers)
    key = None if key_id is None else await guard.keyring.get(key_id)
    if key is None:
        return None
    if scope["method"] not in SAFE_METHODS:
        foreign = why_foreign(headers, scheme=scheme_of(scope, headers))
        if "origin" not in headers:
            foreign = "a request by cookie that changes something has to name our page as `Origin`"
        if foreign is not None:
            raise _foreign(foreign)
    return principal_of(key, via="cookie")


def _is_among(path: str, doors: tuple[str, ...]) -> bool:
    return any(path == door or (door.endswith("/") and path.startswith(door)) for door in doors)


def _is_below(path: str, doors: tuple[str, ...]) -> bool:
    return any(path == door or path.startswith(f"{door}/") for door in doors)


def _wait_if(seconds: int | None, detail: str) -> None:
    if seconds is not None:
        raise _Refused(
            HTTPStatus.TOO_MANY_REQUESTS,
            f"{detail}; ask again in {seconds} s",
            "too-many-requests",
            "Too many requests",
            {"Retry-After": str(seconds)},
        )


def _unknown(detail: str) -> _Refused:
    return _Refused(
        HTTPStatus.UNAUTHORIZED,
        detail,
        "unauthorized",
        "Nobody whom we know",
        {"WWW-Authenticate": "Bearer"},
    )


def _foreign(detail: str) -> _Refused:
    return _Refused(
        HTTPStatus.FORBIDDEN, detail, "foreign-origin", "Only our own pages may do this"
    )


def _answer(scope: Request, refused: _Refused) -> Response:
    headers = Headers(scope=scope)
    _log.warning("a request was refused", extra={"path": scope["path"], "reason": refused.detail})
    navigates = scope["method"] == "GET" and "text/html" in headers.get("accept", "")
    if refused.status == HTTPStatus.UNAUTHORIZED and navigates and "authorization" not in headers:
        query = scope["query_string"].decode("latin-1")
        place = f"{scope['path']}?{query}" if query else scope["path"]
        return RedirectResponse(f"/login?next={quote(place, safe='')}", HTTPStatus.SEE_OTHER)
    return problem_response(
        refused.status,
        refused.detail,
        kind=f"urn:reflectory:{refused.kind}",
        title=refused.title,
        headers=refused.headers,
    )
