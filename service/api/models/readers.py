"""Files that become models: one reader for each sort, chosen by a file's name or its beginning."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, final

from models.errors import GraphRefused
from search.tasks.download import sha256_of
from search.training.model_reading import ModelOptions, read_model
from search.uploads.graph_uploads import GraphReading, read_graph_file
from service.api.uploads.forms import ReceivedFile

_BEGINNING = 16
"""Bytes of a file that tell its sort."""
_JSON_AT = 8
"""Where the header of a safetensors file begins, behind its length."""
_IR_VERSION = 0x08
"""What an ONNX file begins with: its first field, as a number."""


@dataclass(frozen=True)
class ReadModel:
    """What was found in a file, and the bytes that are stored."""

    source: str
    path: Path
    sha256: str
    spec: dict[str, Any]
    parameters: int
    notes: tuple[str, ...] = ()


class ModelReader(ABC):
    """Reads one sort of files."""

    suffix: ClassVar[str]
    """Of their names, in small letters."""

    @abstractmethod
    def recognises(self, beginning: bytes) -> bool:
        """Whether a file that begins so is of this sort."""

    @abstractmethod
    def read(self, file: ReceivedFile, options: ModelOptions, folder: Path) -> ReadModel:
        """Read a file; what is stored of it lies in `folder`.

        Raises:
            ModelError: it is no model that is known.
        """


@final
class TensorReader(ModelReader):
    """Reads safetensors into checkpoints of our own form."""

    suffix = ".safetensors"

    def __init__(self, memory_bytes: int) -> None:
        """Reading a file may take so much memory."""
        self._memory_bytes = memory_bytes

    def recognises(self, beginning: bytes) -> bool:
        """See `ModelReader`."""
        return beginning[_JSON_AT : _JSON_AT + 1] == b"{"

    def read(self, file: ReceivedFile, options: ModelOptions, folder: Path) -> ReadModel:
        """See `ModelReader`."""
        path = folder / "checkpoint"
        found = read_model(file.path, options, out=path, memory_bytes=self._memory_bytes)
        return ReadModel(
            source=found.source,
            path=path,
            sha256=sha256_of(path),
            spec=found.spec.model_dump(mode="json"),
            parameters=found.spec.parameter_count(),
            notes=found.notes,
        )


@final
class GraphFileReader(ModelReader):
    """Has ONNX files read in a process of its own; they are stored as they came."""

    suffix = ".onnx"

    def __init__(self, limits: GraphReading) -> None:
        """Reading a file is held within the limits."""
        self._limits = limits

    def recognises(self, beginning: bytes) -> bool:
        """See `ModelReader`."""
        return beginning[:1] == bytes([_IR_VERSION])

    def read(self, file: ReceivedFile, options: ModelOptions, folder: Path) -> ReadModel:
        """See `ModelReader`."""
        if options != ModelOptions():
            given = ", ".join(sorted(options.model_dump(exclude_defaults=True)))
            raise GraphRefused(
                f"an ONNX file says itself what {given} would; allowed with it is none of them"
            )
        most = self._limits.graph.file_bytes
        if file.size > most:
            raise GraphRefused(f"the file has {file.size} bytes; an ONNX file may have {most}")
        found = read_graph_file(
            file.path, out=folder / "folded", to_compress=True, limits=self._limits
        )
        return ReadModel(
            source="onnx",
            path=file.path,
            sha256=file.sha256,
            spec=found.network.model_dump(mode="json"),
            parameters=found.network.parameters,
        )


def reader_for(file: ReceivedFile, readers: Sequence[ModelReader]) -> ModelReader:
    """The reader that a file's name asks for, or else its beginning, or else the first one."""
    name = file.name.lower()
    named = [reader for reader in readers if name.endswith(reader.suffix)]
    if named:
        return named[0]
    with file.path.open("rb") as stream:
        beginning = stream.read(_BEGINNING)
    return next((reader for reader in readers if reader.recognises(beginning)), readers[0])
