"""Safetensors files from users: looked through before anything of them is believed.

Such a file is eight bytes that say how long its header is, the header, and numbers. Nothing in it
can be run, so it is read in the service's own process. What a hostile one could do is to have
memory taken: so its header is limited, what the header says is held against the file's real size,
and numbers are read tensor by tensor only after their count was found to be one that fits.

Source: the format's description, https://huggingface.co/docs/safetensors/index#format
"""

import json
import math
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

import safetensors
import torch
from torch import Tensor

from models.checkpoint import ROUNDED_FORMAT
from models.errors import CheckpointError

DTYPES: Mapping[str, tuple[str, int]] = {
    "F16": ("float16", 2),
    "BF16": ("bfloat16", 2),
    "F32": ("float32", 4),
    "F64": ("float64", 8),
}
"""The types of numbers that are read: the name that torch has for each, and its bytes."""


WIDTHS: Mapping[str, int] = {name: width for name, (_, width) in DTYPES.items()}
"""The same types with their bytes alone."""

_ROUNDED_WIDTHS: Mapping[str, int] = {**WIDTHS, "I8": 1, "I16": 2, "U8": 1}
"""Those of checkpoints of ours with rounded numbers, which hold integers too."""

LARGEST_HEADER = 4 * 2**20
MOST_TENSORS = 10_000
LONGEST_NAME = 200
MOST_DIMENSIONS = 8

HOW_TO_SAVE = (
    'save it by `safetensors.torch.save_file(model.state_dict(), "model.safetensors")` and upload '
    "that file"
)

_LENGTH_BYTES = 8
_SHOWN = 80
_FOREIGN: Mapping[bytes, str] = {
    b"PK": "a ZIP archive, as torch.save and numpy write them",
    b"\x80": "a pickle, as older versions of torch.save wrote it",
    b"\x93NUMPY": "an array of numpy",
    b"\x89HDF": "an HDF5 file, as Keras writes it",
    b"\x08": "an ONNX file",
    b"GGUF": "a GGUF file",
}


class _Opened(Protocol):
    """What the library, which tells no types, gives."""

    def get_tensor(self, name: str) -> Tensor: ...


@dataclass(frozen=True)
class StoredTensor:
    """What a header says of a tensor, once it is known to be true."""

    dtype: str
    """What safetensors calls it."""
    shape: tuple[int, ...]

    @property
    def numbers(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class TensorFile:
    """A safetensors file whose header tells the truth about its bytes."""

    path: Path
    tensors: Mapping[str, StoredTensor]
    metadata: Mapping[str, str]

    @property
    def numbers(self) -> int:
        """How many numbers there are in all tensors together."""
        return sum(tensor.numbers for tensor in self.tensors.values())

    def read(self) -> dict[str, Tensor]:
        """All tensors, in single precision; each is looked through as it is read.

        Raises:
            CheckpointError: a number is NaN or infinite, or too large for single precision.
        """
        try:
            with safetensors.safe_open(self.path, framework="pt") as opened:  # pyright: ignore[reportUnknownVariableType] -- untyped
                file = cast(_Opened, opened)
                return {name: self._single(name, file.get_tensor(name)) for name in self.tensors}
        except safetensors.SafetensorError as error:
            raise CheckpointError(f"the file cannot be read: {error}") from error

    def _single(self, name: str, stored: Tensor) -> Tensor:
        _refuse_not_finite(name, stored, "allowed are finite numbers")
        single = stored.to(torch.float32, copy=True)
        if stored.dtype == torch.float64:
            largest = torch.finfo(torch.float32).max
            _refuse_not_finite(
                name, single, f"as float32, in which models are stored; allowed is +-{largest:.4g}"
            )
        return single


def look_through(path: Path) -> TensorFile:
    """Hold a file's header against its bytes; no tensor is read.

    Raises:
        CheckpointError: it is no safetensors file, is cut off, says of its tensors what cannot be,
            or has tensors of types that are not read.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        header, _ = _header(file, size)
        is_rounded = _metadata(header.get("__metadata__", {})).get("format") == ROUNDED_FORMAT
        file.seek(0)
        widths = _ROUNDED_WIDTHS if is_rounded else WIDTHS
        tensors, metadata = contents(file, size, widths=widths)
    return TensorFile(path, tensors, metadata)


def contents(
    file: BinaryIO,
    size: int,
    *,
    widths: Mapping[str, int] = WIDTHS,
    most_tensors: int = MOST_TENSORS,
) -> tuple[Mapping[str, StoredTensor], Mapping[str, str]]:
    """The tensors and the metadata of a file, once its header is known to be true of its bytes.

    Args:
        file: read from where it stands, as far as its header goes.
        size: how many bytes there are from there on.
        widths: the types of numbers that it may have, and their bytes.
        most_tensors: how many it may have.

    Raises:
        CheckpointError: see `look_through`.
    """
    header, data_size = _header(file, size)
    metadata = _metadata(header.pop("__metadata__", {}))
    if not header:
        raise CheckpointError("the file has no tensors; a model has at least a weight matrix")
    if len(header) > most_tensors:
        raise CheckpointError(
            f"the file has {len(header)} tensors; allowed are at most {most_tensors}"
        )
    places: list[tuple[int, int, str]] = []
    tensors: dict[str, StoredTensor] = {}
    for name, entry in header.items():
        _check_name(name)
        tensors[name], begin, end = _entry(name, entry, data_size, widths)
        places.append((begin, end, name))
    _check_places(sorted(places), data_size)
    return tensors, metadata


def _header(file: BinaryIO, size: int) -> tuple[dict[str, Any], int]:
    """The header as it stands, and how many bytes follow it."""
    head = file.read(_LENGTH_BYTES)
    if len(head) < _LENGTH_BYTES:
        raise CheckpointError(
            f"the file has {size} bytes and is no safetensors file, which begins with "
            f"{_LENGTH_BYTES} bytes for the length of its header; {HOW_TO_SAVE}"
        )
    (length,) = struct.unpack("<Q", head)
    if length > LARGEST_HEADER:
        _refuse_foreign(head)
        raise CheckpointError(
            f"the file says that its header has {length} bytes; allowed are at most "
            f"{LARGEST_HEADER}. If it is no safetensors file, {HOW_TO_SAVE}"
        )
    if length > size - _LENGTH_BYTES:
        raise CheckpointError(
            f"the file is cut off: its header should have {length} bytes, and after the first "
            f"{_LENGTH_BYTES} there are {size - _LENGTH_BYTES}"
        )
    try:
        header = json.loads(
            file.read(length).decode("utf-8"),
            object_pairs_hook=_without_repetition,
            parse_constant=_no_number,
        )
    except (ValueError, RecursionError) as error:
        raise CheckpointError(
            f"the file's header is no JSON that can be read: {_shortened(str(error))}. If it is no "
            f"safetensors file, {HOW_TO_SAVE}"
        ) from error
    if not isinstance(header, dict):
        raise CheckpointError("the file's header is no JSON object; allowed is one of tensors")
    return cast(dict[str, Any], header), size - _LENGTH_BYTES - length


def _refuse_foreign(head: bytes) -> None:
    for beginning, what in _FOREIGN.items():
        if head.startswith(beginning):
            raise CheckpointError(
                f"the file is {what}; only safetensors files are read, which hold numbers and "
                f"nothing that could run (no pickles, ever). Load the model where you trust it, "
                f"{HOW_TO_SAVE}"
            )


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen = set[str]()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise ValueError(f"{_shown(twice)} is there twice")
    return found


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no number of JSON")


def _metadata(found: Any) -> dict[str, str]:
    given = cast(dict[str, Any], found) if isinstance(found, dict) else None
    if given is None or not all(isinstance(value, str) for value in given.values()):
        raise CheckpointError("the file's __metadata__ is no object of texts; allowed is one")
    return given


def _check_name(name: str) -> None:
    if not 0 < len(name) <= LONGEST_NAME or not (name.isascii() and name.isprintable()):
        raise CheckpointError(
            f"a tensor is called {_shown(name)} ({len(name)} characters); allowed are names of 1 "
            f"to {LONGEST_NAME} printable characters of ASCII"
        )


def _entry(
    name: str, entry: Any, data_size: int, widths: Mapping[str, int]
) -> tuple[StoredTensor, int, int]:
    """What the header says of one tensor, and from where to where its bytes go."""
    fields = cast(dict[str, Any], entry) if isinstance(entry, dict) else {}
    dtype, sizes, offsets = (fields.get(key) for key in ("dtype", "shape", "data_offsets"))
    if (
        len(fields) != 3
        or not isinstance(dtype, str)
        or not isinstance(sizes, list)
        or not isinstance(offsets, list)
        or len(cast(list[Any], offsets)) != 2
    ):
        raise CheckpointError(
            f"the header says something else of tensor {_shown(name)} than what it has to; allowed "
            "is an object of dtype, shape and two data_offsets"
        )
    sizes, (begin, end) = cast(list[Any], sizes), cast(list[Any], offsets)
    if dtype not in widths:
        raise CheckpointError(
            f"tensor {_shown(name)} has the type {_shown(dtype)}; allowed are {', '.join(widths)}"
        )
    if len(sizes) > MOST_DIMENSIONS or not all(_is_count(one) for one in sizes):
        raise CheckpointError(
            f"tensor {_shown(name)} has the shape {_listed(sizes)}; allowed are up to "
            f"{MOST_DIMENSIONS} whole numbers from 0"
        )
    if not (_is_count(begin) and _is_count(end) and begin <= end):
        raise CheckpointError(
            f"the bytes of tensor {_shown(name)} are said to be at {_listed([begin, end])}; "
            "allowed are a beginning from 0 and an end that is not before it"
        )
    if end > data_size:
        raise CheckpointError(
            f"the file is cut off, or its header lies: tensor {_shown(name)} ends at byte {end} of "
            f"the data, and there are {data_size}"
        )
    tensor = StoredTensor(dtype, tuple(sizes))
    needed = tensor.numbers * widths[dtype]
    if needed != end - begin:
        raise CheckpointError(
            f"tensor {_shown(name)} has the shape {list(sizes)} of {dtype}, which takes {needed} "
            f"bytes, and the header gives it {end - begin}"
        )
    return tensor, begin, end


def _check_places(places: list[tuple[int, int, str]], data_size: int) -> None:
    """Every byte of the data belongs to one tensor."""
    reached, before = 0, "the header"
    for begin, end, name in places:
        if begin != reached:
            fault = "overlap" if begin < reached else "leave bytes between them that are nobody's"
            raise CheckpointError(
                f"{_shown(before)} and {_shown(name)} {fault} (bytes {reached} and {begin} of the "
                "data); allowed are tensors one after the other"
            )
        reached, before = end, name
    if reached != data_size:
        raise CheckpointError(
            f"after the last tensor {data_size - reached} bytes follow that are no tensor's; "
            "allowed are none"
        )


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _refuse_not_finite(name: str, tensor: Tensor, allowed: str) -> None:
    finite = torch.isfinite(tensor)
    if finite.all():
        return
    count = int(tensor.numel() - finite.sum())
    place = tuple(map(int, (~finite).nonzero()[0]))
    raise CheckpointError(
        f"tensor {_shown(name)} has {float(tensor[place])} at {list(place)} ({count} of "
        f"{tensor.numel()} entries are no finite number); {allowed}"
    )


def _shown(text: str) -> str:
    """A text of the file as a message quotes it, which holds no whole tensor and breaks no line."""
    return repr(_shortened(text))


def _listed(values: list[Any]) -> str:
    """Values of a header as a message quotes them; what is no plain one is named by its type."""
    texts = (repr(v) if isinstance(v, int | float | str) else type(v).__name__ for v in values)
    return _shortened(f"[{', '.join(texts)}]")


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
