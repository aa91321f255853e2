"""A stranger's file is read in a process of its own, which says what it met."""

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from search.errors import DataError
from search.uploads.confinement import NO_ROOM, OUT_OF_MEMORY
from storage.errors import StoreFull

logger = logging.getLogger(__name__)

_LOGGED_BYTES = 4000


def confined_answer(
    module: str, order: Mapping[str, object], *, memory_bytes: int, seconds: float
) -> bytes:
    """What a module that calls `answer_order` writes to its standard output.

    It limits itself; here it is ended once `seconds` of the clock have passed.

    Raises:
        DataError: it met a limit, which the message names, or crashed, which is logged.
        StoreFull: the disk has no room for what it writes; the file is not at fault.
    """
    process = subprocess.Popen(
        # -P and -s: a folder `search` or `numpy` where the service was started is not ours.
        [sys.executable, "-P", "-s", "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=_environment(),
        # A session of its own, so that all that it may have started can be ended with it.
        start_new_session=True,
    )
    with process:
        try:
            answer, errors = process.communicate(json.dumps(order).encode(), timeout=seconds)
        except subprocess.TimeoutExpired as error:
            raise _too_long(seconds) from error
        finally:
            _end(process)
    if process.returncode == -signal.SIGXCPU:
        raise _too_long(seconds)
    if process.returncode == OUT_OF_MEMORY:
        raise DataError(
            f"reading the file needs more memory than its limit of {_size(memory_bytes)}"
        )
    if process.returncode == NO_ROOM:
        raise StoreFull("the server's disk has no room for what is read from the file")
    if process.returncode != 0:
        logger.error(
            "the reader of an upload crashed",
            extra={
                "exit_status": process.returncode,
                "errors": errors[-_LOGGED_BYTES:].decode(errors="replace"),
            },
        )
        raise DataError(
            f"the reader of the file crashed (exit status {process.returncode}); it may take "
            f"{_size(memory_bytes)} of memory and {seconds:g} seconds"
        )
    return answer


def _environment() -> dict[str, str]:
    """None of the service's own environment, which holds its secrets."""
    return {
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "PYTHONUTF8": "1",
        # Each thread of a numeric library reserves memory that counts against the limit.
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process group, if the process is there yet."""
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGKILL)


def _too_long(seconds: float) -> DataError:
    return DataError(f"reading the file took longer than its limit of {seconds:g} seconds")


def _size(count: int) -> str:
    return f"{count / 2**30:.3g} GiB ({count} bytes)"
