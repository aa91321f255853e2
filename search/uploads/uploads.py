"""Users' uploads, read in a process of its own, whose memory and time are limited."""

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from search.errors import DataError
from search.uploads.dataset_metadata import DatasetFacts, ReadingOptions, SamplePreview
from search.uploads.decoding import READERS
from search.uploads.upload_reader import OUT_OF_MEMORY

logger = logging.getLogger(__name__)

SUFFIXES = tuple(READERS)
"""Of the files that can be read, in small letters."""

_READER = "search.uploads.upload_reader"
_LOGGED_BYTES = 4000


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
    """Read an upload and write its container, see `search.uploads.container`.

    Args:
        paths: `file`, and, where there is an official test part, `test`, of the same format.
        suffix: one of `SUFFIXES`; the files' own names say nothing.
        options: how to read.
        out: the container; it is there when this returns, and only then.
        limits: what reading may take.

    Raises:
        DataError: The upload cannot be read; the message says where and why, in the user's words.
    """
    if suffix not in SUFFIXES:
        raise DataError(
            f"files of the type {suffix!r} are not read; allowed: {', '.join(SUFFIXES)}"
        )
    order = {
        "paths": {part: str(path.absolute()) for part, path in paths.items()},
        "suffix": suffix,
        "options": options.model_dump(mode="json"),
        "out": str(out.absolute()),
        "limits": asdict(limits),
    }
    try:
        return _facts(_answer(order, limits))
    except BaseException:
        out.unlink(missing_ok=True)
        raise


def _answer(order: Mapping[str, object], limits: UploadLimits) -> bytes:
    """What the reading process writes to its standard output."""
    process = subprocess.Popen(
        # -P and -s: a folder `search` or `numpy` where the service was started is not ours.
        [sys.executable, "-P", "-s", "-m", _READER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=_environment(),
        # A session of its own, so that all that it may have started can be ended with it.
        start_new_session=True,
    )
    with process:
        try:
            answer, errors = process.communicate(json.dumps(order).encode(), timeout=limits.seconds)
        except subprocess.TimeoutExpired as error:
            raise _too_long(limits) from error
        finally:
            _end(process)
    if process.returncode == -signal.SIGXCPU:
        raise _too_long(limits)
    if process.returncode == OUT_OF_MEMORY:
        raise DataError(
            f"reading the file needs more memory than its limit of {_size(limits.memory_bytes)}"
        )
    if process.returncode != 0:
        logger.error(
            "the reader of an upload crashed",
            extra={
                "exit_status": process.returncode,
                "errors": errors[-_LOGGED_BYTES:].decode(errors="replace"),
            },
        )
        raise DataError(
            f"the reader of the file crashed (exit status {process.returncode}); it may take "
            f"{_size(limits.memory_bytes)} of memory and {limits.seconds:g} seconds"
        )
    return answer


def _environment() -> dict[str, str]:
    """None of the service's own environment, which holds its secrets."""
    return {
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "PYTHONUTF8": "1",
        # Each thread of a numeric library reserves memory that counts against the limit.
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process group, if the process is there yet."""
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGKILL)


def _facts(answer: bytes) -> UploadFacts:
    found = json.loads(answer)
    if "refused" in found:
        raise DataError(found["refused"])
    return UploadFacts(
        DatasetFacts.model_validate(found["facts"]),
        tuple(SamplePreview.model_validate(sample) for sample in found["preview"]),
    )


def _too_long(limits: UploadLimits) -> DataError:
    return DataError(f"reading the file took longer than its limit of {limits.seconds:g} seconds")


def _size(count: int) -> str:
    return f"{count / 2**30:.3g} GiB ({count} bytes)"
