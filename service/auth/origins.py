"""From where requests may come: the rules for the local user, for pages, and for addresses.

A server without keys listens on loopback only. That alone does not keep others out: a web page can
make the user's browser call loopback (with its own `Origin`, or under a name that it has resolved
to loopback), and a proxy on this machine can pass on whom it likes. So each request has to name
loopback as its host, come without a proxy's marks, and, where it may change something, come from
no page but ours.
"""

import ipaddress
from collections.abc import Collection
from datetime import UTC, datetime
from functools import lru_cache

from starlette.datastructures import Headers
from starlette.types import Scope

from storage.accounts.keys import Keys
from storage.engine import Database

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_FORWARDING = frozenset({"forwarded", "via", "x-real-ip", "x-client-ip", "true-client-ip"})


class AddressRefused(Exception):
    """The server would be reachable from elsewhere, and there is no valid key to ask for."""


def check_address(host: str, database_url: str) -> None:
    """Refuse any address but loopback while the database has no valid key.

    Raises:
        AddressRefused: the address is not loopback; says what is allowed.
        DatabaseUnavailable: the database does not answer.
    """
    if is_loopback(host):
        return
    database = Database(database_url)
    try:
        with database.read() as session:
            guarded = Keys(session).any_valid(at=datetime.now(UTC))
    finally:
        database.dispose()
    if not guarded:
        raise AddressRefused(
            f"host {host!r} can be reached from other machines, and no valid API key exists that "
            "would keep strangers out; make one with `reflectory keys create NAME`, or listen on "
            "one of the loopback addresses: 127.0.0.1, ::1 or localhost"
        )


@lru_cache(maxsize=1024)
def is_loopback(name: str) -> bool:
    """Whether a host name or address (without a port) is this machine's loopback."""
    bare = name.removeprefix("[").removesuffix("]").lower()
    if bare == "localhost":
        return True
    try:
        return ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return False


def why_other_host(headers: Headers, names: Collection[str], *, loopback: bool) -> str | None:
    """Why `Host` is none of these names, nor a loopback one where that is allowed; null when it is.

    A page that has its own name resolved to our address cannot hide which name that is.
    """
    host = _host(headers)
    name = _without_port(host).lower()
    if name in names or (loopback and is_loopback(name)):
        return None
    allowed = [*names, *(("localhost", "127.0.0.1", "[::1]") if loopback else ())]
    return f"Host is {host!r}; allowed are {', '.join(allowed)} (see REFLECTORY_HOSTS)"


def why_not_local(
    method: str, headers: Headers, *, scheme: str = "http", names: Collection[str] = ()
) -> str | None:
    """Why a request is not the local user's own; null when it is.

    `names` are what the server is called on this machine besides loopback names.
    """
    other = why_other_host(headers, names, loopback=True)
    if other is not None:
        return other
    for name in headers:
        if name in _FORWARDING or name.startswith("x-forwarded-"):
            return f"header {name!r} marks a forwarded request; only direct ones are let in"
    if method in SAFE_METHODS:
        return None
    return why_foreign(headers, scheme=scheme)


def why_foreign(headers: Headers, *, scheme: str) -> str | None:
    """Why a request comes from a page that is not ours; null when it comes from ours, or none."""
    ours = f"{scheme}://{_host(headers)}"
    for origin in headers.getlist("origin"):
        if origin != ours:
            return f"Origin is {origin!r}; allowed here are {ours} and requests of no page"
    return None


def peer_of(scope: Scope) -> str:
    """The address that speaks to us; a trusted proxy's client. Empty where it is a Unix socket.

    What proxies say is read before anything else sees the request, see `service.app`.
    """
    client: tuple[str, int] | None = scope.get("client")
    return "" if client is None else client[0]


def is_by_unix_socket(scope: Scope) -> bool:
    """Whether the request came by a Unix socket, which has a path and no port."""
    server: tuple[str, int | None] | None = scope.get("server")
    return server is not None and server[1] is None


def _host(headers: Headers) -> str:
    hosts = headers.getlist("host")
    return hosts[0] if len(hosts) == 1 else ""


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() and not name.endswith(":") and name else host
