"""The process that reads an upload: an order in, an answer out.

The order is a JSON document on standard input; the answer is one on standard output: `facts` and
`preview`, or `refused` with the sentence for the user.

See Note [Uploads without torch] in `search/README.md`.
"""

import errno
import json
import math
import resource
import signal
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from search.errors import DataError
from search.linux import die_with_parent
from search.uploads import container, decoding
from search.uploads.dataset_metadata import ReadingOptions

OUT_OF_MEMORY = 3
"""The exit status when the limit of memory was met; 0 is an answer."""

_CONTAINER_OVERHEAD = 2**20
"""Bytes of a container beside its arrays: headers, facts, preview."""


def main() -> None:
    """Carry out the order on standard input."""
    die_with_parent(signal.SIGKILL)
    order = json.load(sys.stdin)
    try:
        answer = _read(order)
    except MemoryError:
        sys.exit(OUT_OF_MEMORY)
    sys.stdout.write(json.dumps(answer))


def _read(order: Mapping[str, Any]) -> Mapping[str, object]:
    limits = order["limits"]
    _limit(limits)
    try:
        with ExitStack() as files:
            decoded = decoding.decode(
                {
                    part: files.enter_context(Path(path).open("rb"))
                    for part, path in order["paths"].items()
                },
                suffix=order["suffix"],
                options=ReadingOptions.model_validate(order["options"]),
                most_bytes=limits["decoded_bytes"],
            )
        with Path(order["out"]).open("wb") as out:
            container.write(out, decoded)
    except DataError as error:
        return {"refused": str(error)}
    except OSError as error:
        if error.errno != errno.EFBIG:
            raise
        return {"refused": f"the arrays take more than {limits['decoded_bytes']} bytes"}
    return {
        "facts": decoded.facts.model_dump(mode="json"),
        "preview": [sample.model_dump(mode="json") for sample in decoded.preview],
    }


def _limit(limits: Mapping[str, Any]) -> None:
    """Limit what follows, from which there is no way back: hard limits cannot be raised again."""
    memory, largest = limits["memory_bytes"], limits["decoded_bytes"] + _CONTAINER_OVERHEAD
    seconds = max(1, math.ceil(limits["seconds"]))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # A write beyond the limit becomes an error in place of a signal.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


if __name__ == "__main__":
    main()
