"""Functions run in a process of their own, with one thread, as a worker runs."""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import torch


def in_new_process(function: Callable[..., Any], *arguments: Any) -> tuple[Any, int]:
    """Give what the function returned (None where it was killed) and the process's exit code."""
    asked = pickle.dumps((function, arguments))
    command = [sys.executable, "-m", __name__]
    done = subprocess.run(command, input=asked, stdout=subprocess.PIPE, check=False)
    return pickle.loads(done.stdout) if done.stdout else None, done.returncode


def _main() -> None:
    answer = os.fdopen(os.dup(1), "wb")
    # The answer has the pipe to itself.
    os.dup2(2, 1)
    torch.set_num_threads(1)
    function, arguments = pickle.load(sys.stdin.buffer)
    with answer:
        pickle.dump(function(*arguments), answer)


if __name__ == "__main__":
    _main()
