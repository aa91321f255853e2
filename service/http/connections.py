"""What a client may hold of an API process by its connections alone: how many, and for how long.

uvicorn bounds neither the time of a request's head and body nor the connections of one address. So
each connection counts the time in which its client could have sent or taken something, and did not;
a round per second closes those that are too slow. Time in which we do not read is nobody's fault.
All of this holds per API process. Connections by a Unix socket are this user's own: their number is
not limited.
"""

import asyncio
import ipaddress
import json
import logging
import resource
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, cast, final

import httptools
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from service.http.refusals import Reason
from service.http.request_watch import RequestCounters

_log = logging.getLogger(__name__)

_LONGEST_ROUND_SECONDS = 2.0
"""A round that comes late was held up by us: what clients sent meanwhile is not read yet."""
_LINGER_SECONDS = 2.0
"""How long the rest of a body is taken and dropped after the answer, for clients that read nothing
before they have sent all."""
_LINGER_BYTES = 4 << 20
_TELL_EVERY_SECONDS = 10.0
_SPARE_FILES = 512
"""Open files that the process needs beside its connections."""
_LARGEST_HEAD = 64 << 10
"""Bytes of a request's line and headers that may wait for their end: the parser has no bound."""


@dataclass(frozen=True, kw_only=True)
class ConnectionLimits:
    """How much a client may hold, and how slow it may be."""

    header_seconds: float
    """For a request's line and headers, from the connection or its first byte on."""
    body_idle_seconds: float
    """Between two pieces of a body."""
    body_seconds: float
    """For a whole body, unless it is fast enough."""
    body_bytes_per_second: int
    """How fast is enough, in the mean."""
    answer_idle_seconds: float
    """How long a client may take nothing of an answer."""
    connections: int
    connections_per_address: int
    proxies: Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network] = ()
    """Addresses that speak for many others, so that only the whole number counts."""


@final
class ConnectionWatch:
    """The connections of one process."""

    def __init__(self, limits: ConnectionLimits, counters: RequestCounters) -> None:
        self.limits = limits
        self._counters = counters
        self.open: set[WatchedConnection] = set()
        self._by_address: dict[str, dict[WatchedConnection, None]] = {}
        self._counted: dict[WatchedConnection, None] = {}
        self._closed: Counter[Reason] = Counter()
        self._untold_seconds = 0.0

    def admit(self, connection: "WatchedConnection", address: str) -> HTTPStatus | None:
        """Count a connection; null, or why it is one too many.

        Where the limit is reached, the oldest one that waits for no answer makes room.
        """
        of_address = self._by_address.setdefault(address, {})
        if (
            len(of_address) >= self.limits.connections_per_address
            and not self._is_proxy(address)
            and not _make_room(of_address)
        ):
            self.note("connections-address")
            return HTTPStatus.TOO_MANY_REQUESTS
        if len(self._counted) >= self.limits.connections and not _make_room(self._counted):
            self.note("connections")
            self._forget_empty(address)
            return HTTPStatus.SERVICE_UNAVAILABLE
        # Room may have been made by the last one of this address.
        self._by_address.setdefault(address, of_address)[connection] = None
        self._counted[connection] = None
        return None

    def forget(self, connection: "WatchedConnection", address: str) -> None:
        """A connection is over; saying so twice is harmless."""
        self._counted.pop(connection, None)
        self._by_address.get(address, {}).pop(connection, None)
        self._forget_empty(address)

    def note(self, reason: Reason) -> None:
        """Count a connection that was closed by us."""
        self._counters.refused(reason)
        self._closed[reason] += 1

    def tell(self, seconds: float) -> None:
        """Log now and then what was closed; `seconds` have passed since the last call."""
        self._untold_seconds += seconds
        if self._closed and self._untold_seconds >= _TELL_EVERY_SECONDS:
            _log.warning("connections were closed", extra={"reasons": dict(self._closed)})
            self._closed.clear()
            self._untold_seconds = 0.0

    def _forget_empty(self, address: str) -> None:
        if not self._by_address.get(address):
            self._by_address.pop(address, None)

    def _is_proxy(self, address: str) -> bool:
        if not self.limits.proxies:
            return False
        peer = ipaddress.ip_address(address)
        return any(peer in network for network in self.limits.proxies)


def _make_room(connections: "dict[WatchedConnection, None]") -> bool:
    """Close the oldest connection without a request; false where each has one."""
    idle = next((one for one in connections if one.is_idle), None)
    if idle is None:
        return False
    idle.end("connection-idle")
    return True


class WatchedConfig(uvicorn.Config):
    """uvicorn's configuration with the watch that all connections share."""

    def __init__(
        self, app: ASGIApp, *, limits: ConnectionLimits, counters: RequestCounters, **given: Any
    ) -> None:
        super().__init__(app, http=WatchedConnection, ws="none", **given)
        self.watch = ConnectionWatch(limits, counters)


@final
class WatchedConnection(HttpToolsProtocol):
    """An HTTP/1.1 connection that ends when its client is too slow."""

    def __init__(
        self,
        config: WatchedConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._watch = config.watch
        self._address: str | None = None
        self._heading: float | None = 0.0
        """Seconds since a head was due; null while none is."""
        self._head_bytes = 0
        self._in_body = False
        """Whether the head of a request is there, and its body not yet."""
        self._asked = False
        """Whether there ever was a request."""
        self._got_bytes = False
        self._idle = 0.0
        self._waited = 0.0
        self._received = 0
        self._lingered = 0.0
        self._dropped = 0
        self._stalled = 0.0
        self._unsent = 0

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way, so that nobody loses an answer when it ends."""
        return not self._asked or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection, or refuse it where it is one too many."""
        super().connection_made(transport)
        self._watch.open.add(self)
        if self.client is None:
            return
        self._address = self.client[0]
        refused = self._watch.admit(self, self._address)
        if refused is not None:
            self._address = None
            self._say(refused, "too many connections; try again in a moment")
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Count the connection no more."""
        self._watch.open.discard(self)
        self._forget()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass bytes on, and note that some came."""
        if self.transport.is_closing():
            return
        self._got_bytes = True
        if self._heading is None and not self._in_body:
            self._heading = 0.0
        super().data_received(data)
        self._head_bytes = 0 if self._heading is None else self._head_bytes + len(data)
        if self._head_bytes > _LARGEST_HEAD:
            self.send_400_response(f"The head is larger than {_LARGEST_HEAD} bytes.")
        elif not self._in_body:
            self._waited = self._lingered = 0.0
            self._received = self._dropped = 0
        elif self.is_idle:
            self._dropped += len(data)
            if self._dropped > _LINGER_BYTES:
                self.flow.pause_reading()
        else:
            self._idle = 0.0
            self._received += len(data)

    def on_message_begin(self) -> None:
        """Wait for a request's head: another may have ended in the same piece of bytes."""
        self._heading = 0.0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Begin with a request whose head is there."""
        self._heading, self._in_body = None, True
        super().on_headers_complete()
        self._asked = True
        if cast("httptools.HttpRequestParser", self.parser).should_upgrade():
            # We speak nothing else, and the parser takes what follows for something else.
            self.cycle.keep_alive = False

    def on_message_complete(self) -> None:
        """Note that all of a request is there."""
        self._in_body = False
        super().on_message_complete()

    def resume_writing(self) -> None:
        """Go on with an answer of which the client has taken much."""
        self._stalled = 0.0
        super().resume_writing()

    def tend(self, seconds: float) -> None:
        """Count time that the client could have used, and end the connection of a slow one."""
        if self._is_stalled(seconds):
            self._watch.note("answer-not-taken")
            self.transport.abort()
        elif self.transport.is_closing():
            return
        elif self._heading is not None and self.is_idle:
            self._heading += seconds
            allowed = self._watch.limits.header_seconds
            if self._heading > allowed:
                self._refuse("head-slow", f"{allowed:g} s for the headers")
        elif self._in_body:
            self._tend_body(seconds)

    def _tend_body(self, seconds: float) -> None:
        limits = self._watch.limits
        if self.is_idle:
            self._lingered += seconds
            if self._lingered > _LINGER_SECONDS:
                self.end("body-unwanted")
            return
        if self.flow.read_paused or self.cycle.waiting_for_100_continue:
            self._idle = 0.0
            return
        self._idle += seconds
        self._waited += seconds
        if self._idle > limits.body_idle_seconds:
            self._refuse("body-slow", f"{limits.body_idle_seconds:g} s between two pieces")
        elif self._waited > max(limits.body_seconds, self._received / limits.body_bytes_per_second):
            self._refuse("body-slow", f"{limits.body_bytes_per_second} bytes of a body a second")

    def _is_stalled(self, seconds: float) -> bool:
        """Whether the client took nothing of its answer for too long."""
        unsent = self.transport.get_write_buffer_size()
        self._stalled = self._stalled + seconds if 0 < self._unsent <= unsent else 0.0
        self._unsent = unsent
        return self._stalled > self._watch.limits.answer_idle_seconds

    def _refuse(self, reason: Reason, allowed: str) -> None:
        """Answer 408 where no answer has begun, and close."""
        if self._got_bytes and (self.is_idle or not self.cycle.response_started):
            self._say(HTTPStatus.REQUEST_TIMEOUT, f"too slow; allowed are {allowed}")
        if not self.is_idle:
            # A task that waits for the rest hears that the client has gone.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.end(reason)

    def end(self, reason: Reason) -> None:
        """Close the connection; nothing is lost that was written."""
        self._watch.note(reason)
        self._forget()
        self.transport.close()

    def _forget(self) -> None:
        if self._address is not None:
            self._watch.forget(self, self._address)
            self._address = None

    def _say(self, status: HTTPStatus, detail: str) -> None:
        problem = {
            "type": "about:blank",
            "title": status.phrase,
            "status": int(status),
            "detail": detail,
        }
        body = json.dumps(problem).encode()
        head = (
            f"HTTP/1.1 {int(status)} {status.phrase}\r\nContent-Type: application/problem+json\r\n"
            f"Content-Length: {len(body)}\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)


class WatchedServer(uvicorn.Server):
    """A server that ends the connections of clients that are too slow."""

    def __init__(self, config: WatchedConfig) -> None:
        super().__init__(config)
        self._watch = config.watch
        self._rounded_at: float | None = None

    async def on_tick(self, counter: int) -> bool:
        """Look at the connections once a second, beside what uvicorn does."""
        if counter % 10 == 0:
            self._round()
        return await super().on_tick(counter)

    def _round(self) -> None:
        now = asyncio.get_running_loop().time()
        since, self._rounded_at = self._rounded_at, now
        if since is None:
            return
        seconds = min(now - since, _LONGEST_ROUND_SECONDS)
        for connection in list(self._watch.open):
            connection.tend(seconds)
        self._watch.tell(seconds)


def allow_open_files(connections: int) -> None:
    """Let this process have as many open files as its connections need, where it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _SPARE_FILES
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        soft = allowed
    if soft != resource.RLIM_INFINITY and soft < wanted:
        _log.warning(
            "fewer files may be open than the limit of connections needs",
            extra={"allowed": soft, "needed": wanted},
        )
