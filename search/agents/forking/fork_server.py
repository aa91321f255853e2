"""The fork server's program: everything that a worker needs, imported once.

`SlotProcesses` starts this program by exec, or has it forked from a process that has imported it.
Importing it must run no tensor operation and leave CUDA untouched: torch's thread pool and the CUDA
driver do not survive a fork.
"""

import sys
from importlib import import_module
from multiprocessing.connection import Connection

import torch

from models.kernels.library import library
from search.agents import slot_process
from search.agents.executor import AttemptTicket
from search.agents.forking.loop import connect, serve
from search.errors import ExecutorError
from search.pandas_import import keep_pandas_out


def run_slot(first: AttemptTicket, pipe: Connection) -> int:
    """Run a slot in this process, just forked, with the first ticket's number of threads."""
    torch.set_num_threads(first.threads)
    return slot_process.serve_slot(first, pipe)


def warm_up() -> None:
    """Have done here, once, what every attempt would else do at first use."""
    # Builds the CPU kernels where this machine never has; without a compiler it says so, once.
    library()


def before_the_first_slot() -> None:
    """Import what optimizers import at their first step: 70 MiB that a machine needs to train."""
    import_module("torch._dynamo")


def serve_attempts(pipe: Connection) -> None:
    """Fork a slot's process for each request that comes through a pipe, until it ends."""
    keep_pandas_out()
    if torch.cuda.is_initialized():
        raise ExecutorError(
            "CUDA is initialised in the fork server: something that it imported used it, "
            "and no fork could use a GPU"
        )
    warm_up()
    serve(pipe, run_slot, before_the_first=before_the_first_slot)


if __name__ == "__main__":
    serve_attempts(connect(int(sys.argv[1])))
