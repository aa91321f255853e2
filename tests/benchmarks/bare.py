"""An application that does nothing, behind the uvicorn that ours has, to compare with."""

import multiprocessing
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import httpx2
import psutil
import uvicorn
from fastapi import FastAPI

from tests.service.processes import wait_until

hello = FastAPI()


@hello.get("/hello")
def say_hello() -> Mapping[str, str]:
    """Do nothing, in a thread, as plain operations of FastAPI run."""
    return {"hello": "world"}


@dataclass(frozen=True)
class Bare:
    """Where it answers, and the process that does."""

    url: str
    process: psutil.Process


@contextmanager
def bare_server() -> Iterator[Bare]:
    """The application that does nothing, in a process of its own."""
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
        config = uvicorn.Config(hello, log_level="critical", access_log=False)
        process = multiprocessing.get_context("fork").Process(
            target=uvicorn.Server(config).run, kwargs={"sockets": [listener]}, daemon=True
        )
        process.start()
        assert process.pid is not None
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"

        def answers() -> bool:
            try:
                return httpx2.get(f"{url}/hello").status_code == 200
            except httpx2.TransportError:
                return False

        try:
            wait_until(answers)
            yield Bare(url, psutil.Process(process.pid))
        finally:
            process.kill()
            process.join()
