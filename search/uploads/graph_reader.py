"""The process that reads a stranger's ONNX file: an order in, an answer out.

It checks the file, fixes inputs, folds constants, and writes what is to be compressed. The answer
has that file's facts as `network`, or `refused` with the sentence for the user.

onnxruntime is here and nowhere in the service's own process: 90 bytes can ask it for 40 GB. See
Note [Uploads without torch] in `search/README.md`.
"""

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.errors import GraphRefused
from models.graphs.documents import GraphLimits
from models.graphs.network_facts import network_facts, refuse_incompressible
from models.graphs.reading import folded, read_graph, refuse_buried_weights, with_fixed
from search.uploads.confinement import answer_order, confine

_FORMAT_OVERHEAD = 2**20
"""Bytes by which a file may be too long before it is seen to be."""


def main() -> None:
    """Carry out the order on standard input."""
    answer_order(_read)


def _read(order: Mapping[str, Any]) -> Mapping[str, object]:
    limits = GraphLimits(**order["limits"])
    confine(
        memory_bytes=order["memory_bytes"],
        seconds=order["seconds"],
        written_bytes=limits.folded_bytes + _FORMAT_OVERHEAD,
    )
    try:
        model = read_graph(_content(Path(order["path"]), limits), limits)
        model = with_fixed(model, order["fixed"], limits)
        feeds = None if order["feeds"] is None else [_arrays(path) for path in order["feeds"]]
        made = folded(model, Path(order["scratch"]), limits, feeds=feeds)
        refuse_buried_weights(made.model, limits)
        network = network_facts(made.model, limits, kept_because=made.kept_because)
        if order["to_compress"]:
            refuse_incompressible(made.model, network, limits)
    except GraphRefused as error:
        return {"refused": str(error)}
    Path(order["out"]).write_bytes(made.model.SerializeToString())
    return {"network": network.model_dump(mode="json")}


def _content(path: Path, limits: GraphLimits) -> bytes:
    """The file, or as much of it as shows that it is too large."""
    with path.open("rb") as file:
        return file.read(limits.file_bytes + 1)


def _arrays(path: str) -> Mapping[str, NDArray[Any]]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    # KeyError, NotImplementedError and RuntimeError are zipfile's, of names, methods and passwords.
    except (
        ValueError,
        EOFError,
        OSError,
        KeyError,
        RuntimeError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise GraphRefused(f"the arrays to try the model on cannot be read: {error}") from error


if __name__ == "__main__":
    main()
