"""One API process: uvicorn around the application, on an address or on open sockets."""

import gc
import ipaddress
import logging
import socket
from contextlib import ExitStack

from fastapi import FastAPI

from search.pandas_import import keep_pandas_out
from service.app import close_streams, create_app
from service.auth.listeners import SocketIsTaken, tcp_listener, unix_listener
from service.auth.origins import check_address
from service.http.connections import (
    ConnectionLimits,
    WatchedConfig,
    WatchedServer,
    allow_open_files,
)
from service.processes import tracer
from service.settings import Settings

_log = logging.getLogger(__name__)


class _Server(WatchedServer):
    """Ends the event streams first, which would else be waited for until the grace is over."""

    def __init__(self, config: WatchedConfig, app: FastAPI) -> None:
        super().__init__(config)
        self._app = app

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start as uvicorn does, and have the garbage collector leave alone what stays anyway.

        All that was imported is millions of objects: going through them would hold up every request
        for a good part of a second, the more often the more connections there are.
        """
        await super().startup(sockets)
        gc.collect()
        gc.freeze()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop as uvicorn does, with nobody listening to events any more."""
        close_streams(self._app)
        await super().shutdown(sockets)


def run_api(
    settings: Settings,
    *,
    listener: socket.socket | None = None,
    attempts: socket.socket | None = None,
) -> None:
    """Serve the API until a signal ends it; requests that run then have the grace time to end.

    Args:
        settings: `host` and `port` say where to listen when no listener is given, and
            `attempts_socket` where for attempts.
        listener: a bound socket, inherited from the process that supervises this one.
        attempts: the same for attempts.

    Raises:
        AddressRefused: the address is not loopback, and there is no key.
        CannotListen: an address or a socket cannot be listened on.
    """
    host = settings.host if listener is None else _host_of(listener)
    check_address(host, settings.database_url)
    allow_open_files(settings.connections)
    tracer.keep_out()
    keep_pandas_out()
    with ExitStack() as held:
        if listener is None:
            listener = held.enter_context(tcp_listener(settings.host, settings.port))
        if attempts is None:
            attempts = _attempts_listener(settings, held)
        app = create_app(settings.model_copy(update={"host": host}))
        config = WatchedConfig(
            app,
            limits=_limits(settings),
            counters=app.state.metrics.requests,
            # A header could otherwise make a forwarded request look like a local one.
            proxy_headers=False,
            server_header=False,
            access_log=False,
            log_config=None,
            timeout_keep_alive=settings.keep_alive_seconds,
            timeout_graceful_shutdown=max(1, round(settings.shutdown_grace_seconds)),
        )
        server = _Server(config, app)
        server.run(sockets=[listener] if attempts is None else [listener, attempts])
    if not server.started:
        raise SystemExit(3)


def _attempts_listener(settings: Settings, held: ExitStack) -> socket.socket | None:
    """The socket that the settings name, made here unless another API process has it."""
    if settings.attempts_socket is None:
        return None
    try:
        return held.enter_context(unix_listener(settings.attempts_socket.absolute()))
    except SocketIsTaken as error:
        _log.info("attempts come in elsewhere", extra={"reason": error})
        return None


def _limits(settings: Settings) -> ConnectionLimits:
    return ConnectionLimits(
        header_seconds=settings.header_seconds,
        body_idle_seconds=settings.body_idle_seconds,
        body_seconds=settings.body_seconds,
        body_bytes_per_second=settings.body_bytes_per_second,
        answer_idle_seconds=settings.answer_idle_seconds,
        connections=settings.connections,
        connections_per_address=settings.connections_per_address,
        proxies=[ipaddress.ip_network(text) for text in settings.trusted_proxies],
    )


def _host_of(listener: socket.socket) -> str:
    return str(listener.getsockname()[0])
