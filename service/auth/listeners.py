"""The sockets that an API listens on: its address, and a Unix socket for its own agent."""

import os
import socket
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from service.auth.origins import is_loopback
from service.data_dir.locks import hold
from service.settings import Settings

_BACKLOG = 1024
LONGEST_SOCKET_PATH = 107
"""Bytes of a Unix socket's path that the kernel takes."""


ATTEMPTS_ELSEWHERE = (
    "attempts of other machines are not served here: this server listens on loopback and has no "
    "keys; REFLECTORY_PUBLIC_ATTEMPTS=true serves them, a key too"
)


class CannotListen(Exception):
    """An address or a socket cannot be listened on; says which and why."""


class SocketIsTaken(CannotListen):
    """Another process listens on the Unix socket."""


@contextmanager
def tcp_listener(host: str, port: int) -> Generator[socket.socket]:
    """A listening socket; connections wait in it while the API starts, or starts again.

    Raises:
        CannotListen: the address is taken or not ours.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise CannotListen(f"cannot listen on host {host!r}: {error}") from error
    with listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen(_BACKLOG)
        except OSError as error:
            raise CannotListen(
                f"cannot listen on {host}:{port}: {error}; --port 0 takes a free port"
            ) from error
        yield listener


@contextmanager
def unix_listener(path: Path) -> Generator[socket.socket]:
    """A listening Unix socket of mode 0600; a folder that is missing is made with mode 0700.

    A socket that a killed process left is replaced, and ours is gone afterwards.

    Raises:
        SocketIsTaken: another process listens on it.
        CannotListen: it cannot be made there.
    """
    with ExitStack() as held:
        try:
            held.enter_context(hold(path.with_suffix(".lock")))
            listener = held.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            if path.is_socket():
                path.unlink()
            # Nobody else may connect, not even between its making and a change of its mode.
            umask = os.umask(0o177)
            try:
                listener.bind(str(path))
            finally:
                os.umask(umask)
            held.callback(path.unlink, missing_ok=True)
            listener.listen(_BACKLOG)
        except BlockingIOError as error:
            raise SocketIsTaken(f"another process listens on the socket {path}") from error
        except OSError as error:
            raise CannotListen(f"cannot listen on the socket {path}: {error}") from error
        yield listener


def own_socket(data_dir: Path, private_folder: Path) -> Path:
    """The socket of a server's own attempts: in its data directory, where the path is short enough.

    Else in `private_folder`, which is to be short. The folder is its owner's alone.
    """
    path = data_dir.absolute() / "run" / "api.sock"
    if len(os.fsencode(path)) > LONGEST_SOCKET_PATH:
        return private_folder / path.name
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Also where it was made before, with other permissions.
    path.parent.chmod(0o700)
    return path


def serves_attempts(settings: Settings, *, has_keys: bool) -> bool:
    """Whether machines may join at the API's address, beside its Unix socket.

    None has to come there while only loopback reaches a server without keys, whose own agent comes
    by its socket.
    """
    if settings.public_attempts is not None:
        return settings.public_attempts
    comes_by_socket = settings.attempts_socket is not None and settings.executor != "ray"
    return has_keys or not (comes_by_socket and is_loopback(settings.host))
