"""A stretch of network between a client and a real server that breaks where a test says."""

import socket
import threading
import time
from collections import deque
from contextlib import suppress
from types import TracebackType
from typing import Self


class Relay:
    """Passes connections on to a server, and cuts some of them.

    `cuts` holds, for the connections to come, after how many bytes of the server's answer each is
    cut; when it is empty, connections are left alone.
    """

    delay_seconds = 0.0
    """How long a piece takes, either way."""

    def __init__(self, upstream: tuple[str, int]) -> None:
        self.cuts: deque[int] = deque()
        self.damage_at: int | None = None
        """The place of a byte, within each connection, that is another one on arrival."""
        self.passed: list[int] = []
        """Bytes of the server's that each connection has let through."""
        self.asked: list[bytes] = []
        """What the client has sent on each connection."""
        self._upstream = upstream
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                number = len(self.passed)
                self.passed.append(0)
                self.asked.append(b"")
                cut = self.cuts.popleft() if self.cuts else None
                threading.Thread(target=self._pass, args=(near, number, cut), daemon=True).start()

    def _pass(self, near: socket.socket, number: int, cut: int | None) -> None:
        with near, socket.create_connection(self._upstream) as far:
            threading.Thread(target=self._ask, args=(near, far, number), daemon=True).start()
            with suppress(OSError):
                while piece := far.recv(65536):
                    time.sleep(self.delay_seconds)
                    place = (self.damage_at or 0) - self.passed[number]
                    if self.damage_at is not None and 0 <= place < len(piece):
                        piece = piece[:place] + bytes([piece[place] ^ 1]) + piece[place + 1 :]
                    room = len(piece) if cut is None else cut - self.passed[number]
                    # Counted before it is sent: whoever has received it finds it counted.
                    self.passed[number] += min(room, len(piece))
                    near.sendall(piece[:room])
                    if room < len(piece):
                        break
                near.shutdown(socket.SHUT_RDWR)
            with suppress(OSError):
                far.shutdown(socket.SHUT_RDWR)

    def _ask(self, near: socket.socket, far: socket.socket, number: int) -> None:
        with suppress(OSError):
            while piece := near.recv(65536):
                self.asked[number] += piece
                far.sendall(piece)
