"""Inside of a process that reads a stranger's file: an order comes in, limits hold, an answer goes.

The order is a JSON document on standard input; the answer is one on standard output.
"""

import errno
import json
import math
import resource
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any

from search.linux import die_with_parent

OUT_OF_MEMORY = 3
"""The exit status when the limit of memory was met; 0 is an answer."""
NO_ROOM = 4
"""The exit status when the disk had no room for what was to be written."""


def answer_order(answer: Callable[[Mapping[str, Any]], Mapping[str, object]]) -> None:
    """Answer the order on standard input, and end with the process that gave it."""
    die_with_parent(signal.SIGKILL)
    order = json.load(sys.stdin)
    try:
        found = answer(order)
    except MemoryError:
        sys.exit(OUT_OF_MEMORY)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        sys.exit(NO_ROOM)
    sys.stdout.write(json.dumps(found))


def confine(*, memory_bytes: int, seconds: float, written_bytes: int) -> None:
    """Limit what follows, from which there is no way back: hard limits cannot be raised again.

    Args:
        memory_bytes: of address space.
        seconds: of the processor.
        written_bytes: of each file.
    """
    whole_seconds = max(1, math.ceil(seconds))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (written_bytes, written_bytes))
    resource.setrlimit(resource.RLIMIT_CPU, (whole_seconds, whole_seconds + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # A write beyond the limit becomes an error in place of a signal.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
