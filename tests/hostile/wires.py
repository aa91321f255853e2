"""Requests as bytes on raw sockets, sent by clients that do not stop when they are refused."""

import gzip
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import repeat
from time import sleep

_PATIENCE_SECONDS = 60.0
_PIECE = 1 << 16
DECLARED = 400_000_000

SILENT = 0
"""The status of a connection that was closed without an answer."""
HANGS = -1
"""The status of one that was neither answered nor closed."""


@dataclass(frozen=True)
class Wire:
    """Where to connect to."""

    host: str
    port: int

    def open(self) -> socket.socket:
        """A new connection."""
        return socket.create_connection((self.host, self.port), timeout=_PATIENCE_SECONDS)


@dataclass(frozen=True)
class Body:
    """A body that nobody honest sends, without its head."""

    name: str
    headers: Mapping[str, str]
    pieces: Iterable[bytes]


def bodies(most: int) -> Iterator[Body]:
    """Every kind of body, of which `most` bytes are really sent."""
    large = [b'{"held_seconds": "', *repeat(b"x" * _PIECE, most // _PIECE)]
    nested = list(repeat(b"[]," * (_PIECE // 3), most // _PIECE))
    bomb = _bomb()
    declared = {"Content-Length": str(DECLARED)}
    chunked = {"Transfer-Encoding": "chunked"}
    yield Body("large", declared, large)
    yield Body("nested", declared, nested)
    yield Body("large, chunked", chunked, map(_chunk, large))
    yield Body("nested, chunked", chunked, map(_chunk, nested))
    yield Body("compressed", {"Content-Encoding": "gzip", "Content-Length": str(len(bomb))}, [bomb])
    yield Body("slow", declared, _slowly(b"[" * 5))
    yield Body("slow, chunked", chunked, map(_chunk, _slowly(b"[" * 5)))


def head(method: str, path: str, *, host: str, headers: Mapping[str, str]) -> bytes:
    """A request's head."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode()


def exchange(wire: Wire, first: bytes, pieces: Iterable[bytes]) -> int:
    """Send all of it, whatever is answered meanwhile, as far as it is taken; the status."""
    try:
        with wire.open() as connection:
            try:
                connection.sendall(first)
                for piece in pieces:
                    connection.sendall(piece)
            except (BrokenPipeError, ConnectionResetError):
                pass
            return status_of(connection)
    except TimeoutError:
        return HANGS
    except ConnectionError:
        return SILENT


def status_of(connection: socket.socket) -> int:
    """The status of the answer that comes."""
    received = b""
    while b"\r\n" not in received:
        try:
            piece = connection.recv(65536)
        except ConnectionResetError:
            return SILENT
        if not piece:
            return SILENT
        received += piece
    return int(received.split()[1])


def ends(connection: socket.socket) -> bool:
    """Whether the server closes the connection, whatever it says before."""
    try:
        while connection.recv(65536):
            pass
    except TimeoutError:
        return False
    except ConnectionResetError:
        pass
    return True


@lru_cache
def _bomb() -> bytes:
    return gzip.compress(bytes(DECLARED // 4), compresslevel=1)


def _chunk(piece: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(piece), piece)


def _slowly(text: bytes) -> Iterator[bytes]:
    for number in range(len(text)):
        yield text[number : number + 1]
        sleep(0.02)
