"""Users' uploads, read in a process of its own, whose memory and time are limited."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter

from search.errors import DataError
from search.uploads.arrays import ARRAY_SUFFIXES
from search.uploads.confined_process import confined_answer
from search.uploads.dataset_metadata import (
    AnyDatasetFacts,
    ArrayFacts,
    DatasetFacts,
    ReadingOptions,
    SamplePreview,
)
from search.uploads.decoding import READERS

SUFFIXES = tuple(READERS)
"""Of the files that can be read, in small letters."""

SUFFIXES_OF: Mapping[str, tuple[str, ...]] = {"samples": SUFFIXES, "arrays": ARRAY_SUFFIXES}
"""The same by what an upload holds."""

_FACTS: TypeAdapter[DatasetFacts | ArrayFacts] = TypeAdapter(AnyDatasetFacts)

_READER = "search.uploads.upload_reader"


@dataclass(frozen=True)
class UploadLimits:
    """What reading an upload may take."""

    memory_bytes: int = 2 * 2**30
    """Address space of the reading process."""
    seconds: float = 120.0
    """Of the processor and of the clock, each."""
    decoded_bytes: int = 4 * 2**30
    """Of the arrays, unpacked, and of the container that is written."""


@dataclass(frozen=True)
class UploadFacts:
    """What was found in an upload."""

    facts: DatasetFacts | ArrayFacts
    preview: tuple[SamplePreview, ...]
    """The beginning of the first few samples; of arrays none are shown."""


def decode_upload(
    paths: Mapping[str, Path],
    *,
    suffix: str,
    options: ReadingOptions,
    out: Path,
    limits: UploadLimits,
) -> UploadFacts:
    """Read an upload and write its container.

    See `search.uploads.container` and, for arrays, `search.uploads.arrays`.

    Args:
        paths: `file`, and, where there is an official test part, `test`, of the same format.
        suffix: one of `SUFFIXES_OF` what it holds; the files' own names say nothing.
        options: how to read.
        out: the container; it is there when this returns, and only then.
        limits: what reading may take.

    Raises:
        DataError: The upload cannot be read; the message says where and why, in the user's words.
    """
    suffixes = SUFFIXES_OF[options.holds]
    if suffix not in suffixes:
        raise DataError(
            f"files of the type {suffix!r} are not read; allowed: {', '.join(suffixes)}"
        )
    order = {
        "paths": {part: str(path.absolute()) for part, path in paths.items()},
        "suffix": suffix,
        "options": options.model_dump(mode="json"),
        "out": str(out.absolute()),
        "limits": asdict(limits),
    }
    try:
        return _facts(
            confined_answer(
                _READER, order, memory_bytes=limits.memory_bytes, seconds=limits.seconds
            )
        )
    except BaseException:
        out.unlink(missing_ok=True)
        raise


def _facts(answer: bytes) -> UploadFacts:
    found = json.loads(answer)
    if "refused" in found:
        raise DataError(found["refused"])
    return UploadFacts(
        _FACTS.validate_python(found["facts"]),
        tuple(SamplePreview.model_validate(sample) for sample in found["preview"]),
    )
