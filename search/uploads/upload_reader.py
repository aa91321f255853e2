"""The process that reads an upload: an order in, an answer out.

The order is a JSON document on standard input; the answer is one on standard output: `facts` and
`preview`, or `refused` with the sentence for the user.

See Note [Uploads without torch] in `search/README.md`.
"""

import errno
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

from search.errors import DataError
from search.uploads import container, decoding
from search.uploads.arrays import facts_of, read_arrays, write_arrays
from search.uploads.confinement import answer_order, confine
from search.uploads.dataset_metadata import (
    ArrayFacts,
    DatasetFacts,
    ReadingOptions,
    SamplePreview,
)

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
    options = ReadingOptions.model_validate(order["options"])
    try:
        with ExitStack() as files:
            opened = {
                part: files.enter_context(Path(path).open("rb"))
                for part, path in order["paths"].items()
            }
            return _READERS[options.holds](order, opened, options)
    except DataError as error:
        return {"refused": str(error)}
    except OSError as error:
        if error.errno != errno.EFBIG:
            raise
        return {"refused": f"the arrays take more than {limits['decoded_bytes']} bytes"}


def _samples(
    order: Mapping[str, Any], files: Mapping[str, BinaryIO], options: ReadingOptions
) -> Mapping[str, object]:
    most_bytes = order["limits"]["decoded_bytes"]
    decoded = decoding.decode(files, suffix=order["suffix"], options=options, most_bytes=most_bytes)
    with Path(order["out"]).open("wb") as out:
        container.write(out, decoded)
    return _answer(decoded.facts, decoded.preview)


def _arrays(
    order: Mapping[str, Any],
    files: Mapping[str, BinaryIO],
    options: ReadingOptions,  # noqa: ARG001 -- arrays are taken as they are
) -> Mapping[str, object]:
    arrays = read_arrays(files["file"], order["limits"]["decoded_bytes"])
    with Path(order["out"]).open("wb") as out:
        write_arrays(out, arrays)
    return _answer(facts_of(arrays), ())


def _answer(
    facts: DatasetFacts | ArrayFacts, preview: Sequence[SamplePreview]
) -> Mapping[str, object]:
    return {
        "facts": facts.model_dump(mode="json"),
        "preview": [sample.model_dump(mode="json") for sample in preview],
    }


_READERS: Mapping[
    str,
    Callable[[Mapping[str, Any], Mapping[str, BinaryIO], ReadingOptions], Mapping[str, object]],
] = {"samples": _samples, "arrays": _arrays}
"""By what an upload holds."""


if __name__ == "__main__":
    main()
