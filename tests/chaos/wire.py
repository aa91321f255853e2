"""The way between an agent and its server, which is cut, loses answers and doubles requests."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal, Self, cast
from urllib.parse import urlsplit

Fault = Literal["cut", "answers lost", "requests doubled"]

_ONLY_HERE = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})
_ANSWER_SECONDS = 60.0
_LATEST_SECONDS = 0.5


class Wire:
    """An HTTP proxy on a loopback port of its own; `fault` is what ails it just now.

    Args:
        upstream: where the server answers; another place each time that it is started.
        generator: decides which requests are struck while it loses answers or doubles requests.
    """

    def __init__(self, upstream: Callable[[], str], generator: random.Random) -> None:
        self.fault: Fault | None = None
        self.struck: Counter[str] = Counter()
        """Requests that did not fare as they should, by fault and by what was asked."""
        self.answered = 0
        """Requests whose answer arrived."""
        self._upstream = upstream
        self._generator = generator
        self._server = _Server(("127.0.0.1", 0), self)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def pass_on(
        self, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[HTTPResponse, bytes] | None:
        """What the server answers; nothing where the answer, or the request, is lost."""
        fault, ask = self.fault, (method, path, headers, body)
        answer = None if fault == "cut" else self._asked(*ask)
        if self.fault == "cut":
            fault = "cut"
        hit = fault is not None and (fault == "cut" or self._generator.random() < 0.5)
        if hit:
            self.struck[f"{fault}: {path.rpartition('/')[2]}"] += 1
        if hit and fault != "requests doubled":
            return None
        self.answered += answer is not None
        if hit:
            late = self._generator.uniform(0, _LATEST_SECONDS)
            threading.Thread(target=self._again, args=(late, ask), daemon=True).start()
        return answer

    def _again(self, seconds: float, ask: tuple[str, str, dict[str, str], bytes]) -> None:
        time.sleep(seconds)
        self._asked(*ask)

    def _asked(
        self, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[HTTPResponse, bytes] | None:
        place = urlsplit(self._upstream())
        connection = HTTPConnection(place.hostname or "", place.port, timeout=_ANSWER_SECONDS)
        try:
            connection.request(method, path, body=body, headers={**headers, "Host": place.netloc})
            response = connection.getresponse()
            return response, response.read()
        except (OSError, HTTPException):
            return None
        finally:
            connection.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], wire: Wire) -> None:
        super().__init__(address, _Handler)
        self.wire = wire

    def handle_error(self, request: object, client_address: object) -> None:
        """Agents that are killed break their connections."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {k: v for k, v in self.headers.items() if k.lower() not in {"host", *_ONLY_HERE}}
        answer = cast(_Server, self.server).wire.pass_on(self.command, self.path, headers, body)
        if answer is None:
            self.close_connection = True
            return
        response, content = answer
        with suppress(OSError):
            self.send_response(response.status)
            for name, value in response.getheaders():
                if name.lower() not in _ONLY_HERE:
                    self.send_header(name, value)
            # 204 has no body, and may have no length.
            if response.status != 204:
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    # The names are the base class's.
    do_GET = do_POST = do_PUT = do_DELETE = _pass  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the agent's own log says what it heard."""
