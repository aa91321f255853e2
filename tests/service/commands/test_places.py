"""Whether a command tries a server again that does not answer."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from service.commands.connection import Place


@pytest.fixture
def port() -> Iterator[int]:
    """One of this machine at which nothing listens, and which nobody else gets."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def ended() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
        return process.pid


def test_what_this_machine_refuses_is_tried_once(port: int) -> None:
    url = f"http://127.0.0.1:{port}"
    assert not Place(url, "it is named").may_begin_to_answer()
    assert not Place(url, "server.json names it", ended()).may_begin_to_answer()


def test_a_server_that_starts_or_is_elsewhere_is_waited_for(port: int) -> None:
    url = f"http://127.0.0.1:{port}"
    assert Place(url, "server.json names it", os.getpid()).may_begin_to_answer()
    assert Place("http://search.example", "it is named").may_begin_to_answer()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        open_url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        assert Place(open_url, "it is named").may_begin_to_answer()
