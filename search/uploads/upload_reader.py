"""The process that reads an upload: an order in, an answer out.

The order is a JSON document on standard input; the answer is one on standard output: `facts` and
`preview`, or `refused` with the sentence for the user.

See Note [Uploads without torch] in `search/README.md`.
"""

import errno
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from search.errors import DataError
from search.uploads import container, decoding
from search.uploads.confinement import answer_order, confine
from search.uploads.dataset_metadata import ReadingOptions

_CONTAINER_OVERHEAD = 2**20
"""Bytes of a container beside its arrays: headers, facts, preview."""


def main() -> None:
    """Carry out the order on standard input."""
    answer_order(_read)


def _read(order: Mapping[str, Any]) -> Mapping[str, object]:
    limits = order["limits"]
    confine(
        memory_bytes=limits["memory_bytes"],
        seconds=limits["seconds"],
        written_bytes=limits["decoded_bytes"] + _CONTAINER_OVERHEAD,
    )
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


if __name__ == "__main__":
    main()
