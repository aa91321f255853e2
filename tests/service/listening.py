"""The API in a thread of the test's process, on a port that real clients can reach."""

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager

import uvicorn

from service.app import close_streams, create_app
from tests.service.site import Site


@contextmanager
def listening(site: Site, *, port: int = 0) -> Generator[tuple[str, int]]:
    """Serve a site's data on a port (0: a free one); gives the address."""
    app = create_app(site.settings)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1))
    with socket.create_server(("127.0.0.1", port)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive(), "the API did not start"
            thread.join(0.01)
        address: tuple[str, int] = listener.getsockname()
        yield address
        close_streams(app)
        server.should_exit = True
        thread.join(100)
        assert not thread.is_alive(), "the API did not stop"
