"""Strangers' ONNX files, read in a process of its own, whose memory and time are limited."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeAlias

from models.errors import GraphRefused
from models.graphs.documents import GraphFacts, GraphLimits, LayerFacts, NetworkFacts
from search.errors import DataError
from search.uploads.confined_process import confined_answer

_READER = "search.uploads.graph_reader"

FixedValue: TypeAlias = "float | Sequence[FixedValue]"
"""A number, or rows of numbers."""


@dataclass(frozen=True, kw_only=True)
class GraphReading:
    """What reading an ONNX file may take."""

    memory_bytes: int = 4 * 2**30
    """Address space of the reading process."""
    seconds: float = 120.0
    """Of the processor and of the clock, each."""
    graph: GraphLimits = field(default_factory=GraphLimits)


@dataclass(frozen=True)
class GraphFile:
    """A network that was read, and written as it is to be compressed."""

    network: NetworkFacts
    """Of the file that was written."""

    @property
    def facts(self) -> GraphFacts:
        """Of its graph."""
        return self.network.graph

    @property
    def layers(self) -> tuple[LayerFacts, ...]:
        """Its weights that are large enough to be compressed."""
        return self.network.layers

    @property
    def kept_because(self) -> str | None:
        """Why its constants are not folded; None: they are."""
        return self.network.kept_because


def read_graph_file(
    path: Path,
    *,
    out: Path,
    fixed: Mapping[str, FixedValue] | None = None,
    feeds: Sequence[Path] | None = None,
    to_compress: bool = False,
    limits: GraphReading | None = None,
) -> GraphFile:
    """Read an ONNX file and write it with inputs fixed and constants folded.

    The calling process looks at none of its bytes.

    Args:
        path: the file.
        out: what is written; it is there when this returns, and only then.
        fixed: values of inputs that become constants; see `models.graphs.reading`.
        feeds: .npz files, each with one array for every other input, on which the model has to
            run; None: random inputs are tried.
        to_compress: whether a network is refused of which nothing can be compressed; weights in
            bodies of an `If` may be, once an input is fixed, if `limits` let such files pass.
        limits: what reading may take.

    Raises:
        GraphRefused: the file is not taken, or met a limit; the message is for the user.
    """
    allowed = limits or GraphReading()
    try:
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=".graph-") as scratch:
            order = {
                "path": str(path.absolute()),
                "out": str(out.absolute()),
                "scratch": str(Path(scratch).absolute()),
                "fixed": dict(fixed or {}),
                "feeds": None if feeds is None else [str(feed.absolute()) for feed in feeds],
                "to_compress": to_compress,
                "memory_bytes": allowed.memory_bytes,
                "seconds": allowed.seconds,
                "limits": asdict(allowed.graph),
            }
            return _graph_file(
                confined_answer(
                    _READER, order, memory_bytes=allowed.memory_bytes, seconds=allowed.seconds
                )
            )
    except DataError as error:
        out.unlink(missing_ok=True)
        raise GraphRefused(str(error)) from error
    except BaseException:
        out.unlink(missing_ok=True)
        raise


def _graph_file(answer: bytes) -> GraphFile:
    found = json.loads(answer)
    if "refused" in found:
        raise GraphRefused(found["refused"])
    return GraphFile(NetworkFacts.model_validate(found["network"]))
