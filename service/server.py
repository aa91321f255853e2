"""One API process: uvicorn around the application, on an address or on an open socket."""

import socket

import uvicorn
from fastapi import FastAPI

from service.app import close_streams, create_app
from service.auth import check_address
from service.settings import Settings


class _Server(uvicorn.Server):
    """Ends the event streams first, which would else be waited for until the grace is over."""

    def __init__(self, config: uvicorn.Config, app: FastAPI) -> None:
        super().__init__(config)
        self._app = app

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop as uvicorn does, with nobody listening to events any more."""
        close_streams(self._app)
        await super().shutdown(sockets)


def run_api(settings: Settings, *, listener: socket.socket | None = None) -> None:
    """Serve the API until a signal ends it; requests that run then have the grace time to end.

    Args:
        settings: `host` and `port` say where to listen when no listener is given.
        listener: a bound socket, inherited from the process that supervises this one.

    Raises:
        AddressRefused: the address is not loopback, and there is no key.
    """
    host = settings.host if listener is None else _host_of(listener)
    check_address(host, settings.database_url)
    app = create_app(settings.model_copy(update={"host": host}))
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        # A header could otherwise make a forwarded request look like a local one.
        proxy_headers=False,
        server_header=False,
        access_log=False,
        log_config=None,
        timeout_graceful_shutdown=max(1, round(settings.shutdown_grace_seconds)),
    )
    server = _Server(config, app)
    server.run(sockets=None if listener is None else [listener])
    if not server.started:
        raise SystemExit(3)


def _host_of(listener: socket.socket) -> str:
    return str(listener.getsockname()[0])
