"""Functions run in a process of their own, with one thread, as a worker runs."""

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch

# The server process imports these once; a fork of it is a new process in milliseconds.
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["search.training.run", "models.checkpoint"])


def in_new_process(function: Callable[..., Any], *arguments: Any) -> tuple[Any, int | None]:
    """Give what the function returned (None where it was killed) and the process's exit code."""
    ours, theirs = _CONTEXT.Pipe(duplex=False)
    process = _CONTEXT.Process(target=_run, args=(theirs, function, arguments))
    process.start()
    theirs.close()
    try:
        result = ours.recv()
    except EOFError:
        result = None
    process.join()
    return result, process.exitcode


def _run(pipe: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    pipe.send(function(*arguments))
