"""Users' uploads, read in a process of its own, whose memory and time are limited."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from search.tasks.dataset_facts import DatasetFacts, ReadingOptions, SamplePreview

SUFFIXES = (".npz", ".csv", ".tsv", ".ts")
"""Of the files that can be read, in small letters."""


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

    facts: DatasetFacts
    preview: tuple[SamplePreview, ...]
    """The beginning of the first few samples."""


def decode_upload(
    paths: Mapping[str, Path],
    *,
    suffix: str,
    options: ReadingOptions,
    out: Path,
    limits: UploadLimits,
) -> UploadFacts:
    """Read an upload and write its container, see `search.tasks.container`.

    Args:
        paths: `file`, and, where there is an official test part, `test`, of the same format.
        suffix: one of `SUFFIXES`; the files' own names say nothing.
        options: how to read.
        out: the container; it is there when this returns, and only then.
        limits: what reading may take.

    Raises:
        DataError: The upload cannot be read; the message says where and why, in the user's words.
    """
    raise NotImplementedError
