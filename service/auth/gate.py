"""Who is let in: a request with a key, a browser that logged in with one, or the local user.

The local user is let in while no key was ever made, on a server that only loopback reaches, by the
rules of `service.auth.origins`. What a request may do follows from its method, and for a few paths
from the path. The user becomes `request.state.principal`, which is null for what is open
to all.

All of it is decided by a request's head. Nobody reads a body before.
"""

import logging
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers
from starlette.responses import RedirectResponse, Response
from starlette.types import Scope as Request

from service.auth.cookies import shown_cookie
from service.auth.keyring import NEEDED, KeyRing
from service.auth.logins import Logins
from service.auth.origins import (
    SAFE_METHODS,
    is_by_unix_socket,
    is_loopback,
    peer_of,
    why_foreign,
    why_not_local,
    why_other_host,
)
from service.auth.principal import LOCAL_USER, OWN_AGENT, WORK, Principal, Scope, principal_of
from service.auth.quota_book import QuotaBook
from service.auth.rate_limits import RateLimits
from service.errors import count_refusal, problem_of
from service.http.refusals import Reason, Refused, answer_to, too_many
from service.http.request_watch import RequestCounters
from service.settings import Settings
from storage.errors import StorageError, TooManyAtOnce

_log = logging.getLogger(__name__)

_BEARER = "bearer "


@dataclass(frozen=True, kw_only=True)
class Doors:
    """Which paths are guarded otherwise than all others."""

    signs_of_life: tuple[str, ...] = ()
    """Paths that are open to all, under whatever name they come."""
    open: tuple[str, ...] = ()
    """Paths that are open to all, and prefixes (with a `/` at their end) of such paths."""
    loopback: tuple[str, ...] = ()
    """Paths that are read without a key by clients on this machine."""
    admin: tuple[str, ...] = ()
    """Paths that need `admin`, with all below them."""
    work: tuple[str, ...] = ()
    """Paths of agents, with all below them: `admin` to read the list, `work` for all else."""


@dataclass(frozen=True, kw_only=True)
class Guard:
    """What the gate looks into; held by the running application."""

    keyring: KeyRing
    logins: Logins
    rates: RateLimits
    quotas: QuotaBook
    admits_local_user: bool
    """Whether only loopback reaches the server."""


class Gate:
    """Lets requests in by their heads, each with its principal, and refuses all others."""

    def __init__(self, *, doors: Doors, settings: Settings, counters: RequestCounters) -> None:
        self._doors = doors
        self._counters = counters
        self._settings = settings
        self._hosts = settings.hosts
        self._ours = {*settings.hosts, *_host_in(settings.url)}
        self._said = False

    async def refusal(self, scope: Request, headers: Headers) -> Response | None:
        """Let a request in and say whose it is; or the answer that refuses it."""
        try:
            await self._admit(scope, headers)
        except StorageError as error:
            count_refusal(scope["app"], error)
            return problem_of(error)
        except Refused as refused:
            self._counters.refused(refused.reason)
            return _answer(scope, refused)
        return None

    async def _admit(self, scope: Request, headers: Headers) -> None:
        guard: Guard = scope["app"].state.guard
        path: str = scope["path"]
        is_agents = _is_below(path, self._doors.work)
        state = scope.setdefault("state", {})
        state["principal"] = None
        if is_by_unix_socket(scope):
            if is_agents:
                # Its mode keeps all others away: who comes here is the server's own agent.
                state["principal"] = await self._checked(guard, scope, OWN_AGENT)
                return
            if path not in self._doors.signs_of_life:
                served = " and ".join(self._doors.work)
                raise _forbidden(
                    "socket",
                    f"{path} is not served on this socket; only {served} are",
                    "Not by this socket",
                )
        else:
            if path not in self._doors.signs_of_life:
                await self._check_host(guard, headers)
            if is_agents:
                _check_origin(scope, headers)
        # Agents speak as often as something begins and ends on their machines.
        if not (is_agents and _was_let_in(guard, headers)):
            _wait_if(guard.rates.arrival(peer_of(scope)), _FROM_ADDRESS, reason="rate-address")
        state["principal"] = await self._principal(guard, scope, headers)

    async def _check_host(self, guard: Guard, headers: Headers) -> None:
        """Only a server that keys guard is asked under any name, unless its names are set."""
        other = why_other_host(headers, self._ours, loopback=True)
        if other is None:
            return
        if not self._hosts and not (guard.admits_local_user and await guard.keyring.is_empty()):
            return
        raise _forbidden("host", other, "Not under this name")

    async def _principal(self, guard: Guard, scope: Request, headers: Headers) -> Principal | None:
        method, path = scope["method"], scope["path"]
        if _is_among(path, (*self._doors.signs_of_life, *self._doors.open)):
            if method not in SAFE_METHODS:
                _check_origin(scope, headers)
            return None
        principal = (
            await _by_key(guard, scope, headers)
            or await _by_cookie(guard, scope, headers)
            or await self._local_user(guard, scope, headers)
        )
        return await self._checked(guard, scope, principal)

    async def _checked(self, guard: Guard, scope: Request, principal: Principal) -> Principal:
        """The user who makes a request, if that is allowed, and not too often."""
        needed = self._needed(scope["method"], scope["path"])
        if needed not in principal.scopes:
            raise Refused(
                "scope",
                HTTPStatus.FORBIDDEN,
                f"this needs the scope {needed!r}; {principal.label} has "
                f"{', '.join(principal.scopes) or 'none'}",
                "scope",
                "The key does not allow this",
            )
        # Machines ask as often as something starts and ends there, however many share a key.
        if principal.key_id is not None and needed != WORK:
            wait = guard.rates.request(principal.key_id)
            _wait_if(wait, f"{principal.label} asks too much", reason="rate-key")
            await _count_for_tenant(guard, principal.tenant)
        return principal

    def _needed(self, method: str, path: str) -> Scope:
        if path in self._doors.work and method in SAFE_METHODS:
            return "admin"
        if _is_below(path, self._doors.work):
            return WORK
        if _is_below(path, self._doors.admin):
            return "admin"
        return "read" if method in SAFE_METHODS else "write"

    async def _local_user(self, guard: Guard, scope: Request, headers: Headers) -> Principal:
        not_local = why_not_local(
            scope["method"], headers, scheme=scope["scheme"], names=self._ours
        )
        from_here = guard.admits_local_user or is_loopback(peer_of(scope))
        # Asked before the database, which may be away, and these may tell that it is.
        if scope["path"] in self._doors.loopback and from_here and not_local is None:
            return LOCAL_USER
        if not guard.admits_local_user:
            raise _unknown("no-credential", NEEDED)
        if not await guard.keyring.is_empty():
            raise _unknown("no-credential", await guard.keyring.what_is_needed())
        if not_local is not None:
            raise Refused(
                "not-local",
                HTTPStatus.FORBIDDEN,
                not_local,
                "not-local",
                "Only the local user is let in",
            )
        if not self._said:
            self._said = True
            _log.info("no key was ever made: the local user is let in, over loopback only")
        return LOCAL_USER


async def _by_key(guard: Guard, scope: Request, headers: Headers) -> Principal | None:
    text = _bearer(headers)
    if text is None:
        return None
    key = await guard.keyring.find(text)
    if key is None:
        _log.warning("a wrong key was shown", extra={"address": peer_of(scope)})
        wait = guard.rates.refusal(peer_of(scope))
        _wait_if(wait, "too many wrong keys came from this address", reason="rate-address")
        raise _unknown("wrong-key", await guard.keyring.why_not(text))
    return principal_of(key, via="key")


def _was_let_in(guard: Guard, headers: Headers) -> bool:
    """Whether the key that is shown was found to be one a moment ago."""
    text = _bearer(headers)
    return text is not None and guard.keyring.was_found(text)


async def _count_for_tenant(guard: Guard, tenant: str) -> None:
    limit = (await guard.quotas.of(tenant)).requests_per_minute
    seconds = guard.rates.tenant(tenant, limit)
    if seconds is not None and limit is not None:
        raise TooManyAtOnce(
            f"quota requests_per_minute: the tenant's keys made {limit} of {limit} requests; ask "
            f"again in {seconds} s",
            quota="requests_per_minute",
            used=limit,
            limit=limit,
            seconds=seconds,
        )


async def _by_cookie(guard: Guard, scope: Request, headers: Headers) -> Principal | None:
    secure = scope["scheme"] == "https"
    login = await guard.logins.find(shown_cookie(headers, secure=secure))
    if login is None:
        return None
    if scope["method"] not in SAFE_METHODS:
        if "origin" not in headers:
            raise _foreign(
                "a request by cookie that changes something has to name our page as `Origin`"
            )
        _check_origin(scope, headers)
    return principal_of(login.key, via="cookie", session=login.session.digest)


def _bearer(headers: Headers) -> str | None:
    """What is shown as a bearer of; null where nothing is."""
    shown = headers.get("authorization", "")
    return shown[len(_BEARER) :].strip() if shown.lower().startswith(_BEARER) else None


def _check_origin(scope: Request, headers: Headers) -> None:
    foreign = why_foreign(headers, scheme=scope["scheme"])
    if foreign is not None:
        raise _foreign(foreign)


def _host_in(url: str | None) -> list[str]:
    host = None if url is None else urlsplit(url).hostname
    return [] if host is None else [host]


def _is_among(path: str, doors: tuple[str, ...]) -> bool:
    return any(path == door or (door.endswith("/") and path.startswith(door)) for door in doors)


def _is_below(path: str, doors: tuple[str, ...]) -> bool:
    return any(path == door or path.startswith(f"{door}/") for door in doors)


_FROM_ADDRESS = "too many requests came from this address"


def _wait_if(seconds: int | None, detail: str, *, reason: Reason) -> None:
    if seconds is not None:
        raise too_many(seconds, detail, reason=reason)


def _unknown(reason: Reason, detail: str) -> Refused:
    return Refused(
        reason,
        HTTPStatus.UNAUTHORIZED,
        detail,
        "unauthorized",
        "Nobody whom we know",
        {"WWW-Authenticate": "Bearer"},
    )


def _forbidden(reason: Reason, detail: str, title: str) -> Refused:
    return Refused(reason, HTTPStatus.FORBIDDEN, detail, f"foreign-{reason}", title)


def _foreign(detail: str) -> Refused:
    return _forbidden("origin", detail, "Only our own pages may do this")


def _answer(scope: Request, refused: Refused) -> Response:
    headers = Headers(scope=scope)
    # Who comes too often is counted, and fills no log.
    if refused.status != HTTPStatus.TOO_MANY_REQUESTS:
        fields = {"path": scope["path"], "reason": refused.detail}
        _log.warning("a request was refused", extra=fields)
    navigates = scope["method"] == "GET" and "text/html" in headers.get("accept", "")
    if refused.status == HTTPStatus.UNAUTHORIZED and navigates and "authorization" not in headers:
        query = scope["query_string"].decode("latin-1")
        place = f"{scope['path']}?{query}" if query else scope["path"]
        return RedirectResponse(f"/login?next={quote(place, safe='')}", HTTPStatus.SEE_OTHER)
    return answer_to(refused)
