"""A user's own server, which webhooks are sent to: it keeps what came and answers as it is told."""

import ssl
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Letter:
    """One request that came."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]


class Receiver:
    """Answers with the statuses given, one after the other; the last one stays.

    A status of 0 is no answer at all, until the receiver is closed.
    """

    def __init__(
        self, *statuses: int, port: int = 0, context: ssl.SSLContext | None = None
    ) -> None:
        self.letters: list[Letter] = []
        self._statuses = list(statuses) or [204]
        self._closing = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver._take(self)

            def do_GET(self) -> None:
                receiver._take(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook?a=b"

    def __enter__(self) -> "Receiver":
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def wait(self, count: int, *, seconds: float = 600.0) -> Sequence[Letter]:
        """What came, once that is so many."""
        deadline = time.monotonic() + seconds
        while len(self.letters) < count:
            assert time.monotonic() < deadline, f"{len(self.letters)} came, not {count}"
            time.sleep(0.02)
        return self.letters

    def _take(self, request: BaseHTTPRequestHandler) -> None:
        length = int(request.headers.get("content-length", 0))
        body = request.rfile.read(length)
        headers = {name.lower(): value for name, value in request.headers.items()}
        status = self._statuses.pop(0) if len(self._statuses) > 1 else self._statuses[0]
        self.letters.append(Letter(request.path, headers, body))
        if status == 0:
            self._closing.wait()
            return
        request.send_response(status)
        if 300 <= status < 400:
            request.send_header("Location", f"http://127.0.0.1:{self.port}/elsewhere")
        request.end_headers()
        # A secret of the receiver's own, which no log of ours may ever show.
        request.wfile.write(b"the receiver's own words")
