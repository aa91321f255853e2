"""Who is let in while no keys exist: the user of this machine, speaking for himself.

A server without keys listens on loopback only. That alone does not keep others out: a web page can
make the user's browser call loopback (with its own `Origin`, or under a name that it has resolved
to loopback), and a proxy on this machine can pass on whom it likes. So each request has to name
loopback as its host, come without a proxy's marks, and, where it may change something, come from
no page but ours.
"""

import ipaddress
import logging

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from service.problems import problem_response

_log = logging.getLogger(__name__)

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_FORWARDING = frozenset({"forwarded", "via", "x-real-ip", "x-client-ip", "true-client-ip"})


class AddressRefused(Exception):
    """The server would be reachable from elsewhere, and there is no key to ask for."""


def check_address(host: str) -> None:
    """Refuse any address but loopback.

    Raises:
        AddressRefused: the address is not loopback; says what is allowed.
    """
    if not is_loopback(host):
        raise AddressRefused(
            f"host {host!r} can be reached from other machines, and no API keys exist that would "
            "keep strangers out; allowed are loopback addresses: 127.0.0.1, ::1 or localhost"
        )


def is_loopback(name: str) -> bool:
    """Whether a host name or address (without a port) is this machine's loopback."""
    bare = name.removeprefix("[").removesuffix("]").lower()
    if bare == "localhost":
        return True
    try:
        return ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return False


class LocalUserOnly:
    """Lets the local user's own requests through and answers 403 to all others.

    Paths under `exempt` carry a credential of their own and are let through as they are.
    """

    def __init__(self, app: ASGIApp, *, exempt: tuple[str, ...] = ()) -> None:
        self._app = app
        self._exempt = exempt

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http" or scope["path"].startswith(self._exempt):
            await self._app(scope, receive, send)
            return
        refusal = _refusal(scope["method"], Headers(scope=scope))
        if refusal is None:
            await self._app(scope, receive, send)
            return
        _log.warning("a request was refused", extra={"path": scope["path"], "reason": refusal})
        response = problem_response(
            403, refusal, kind="urn:reflectory:not-local", title="Only the local user is let in"
        )
        await response(scope, receive, send)


def _refusal(method: str, headers: Headers) -> str | None:
    """Why a request is not the local user's own; null when it is."""
    hosts = headers.getlist("host")
    host = hosts[0] if len(hosts) == 1 else ""
    if not is_loopback(_without_port(host)):
        return f"Host is {host!r}; allowed are loopback names: localhost, 127.0.0.1, [::1]"
    for name in headers:
        if name in _FORWARDING or name.startswith("x-forwarded-"):
            return f"header {name!r} marks a forwarded request; only direct ones are let in"
    if method in _SAFE_METHODS:
        return None
    for origin in headers.getlist("origin"):
        if origin != f"http://{host}":
            return f"Origin is {origin!r}; allowed here are http://{host} and requests of no page"
    return None


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() and not name.endswith(":") and name else host
