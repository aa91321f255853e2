"""Running a file in a process of its own, in which nothing of the caller's is loaded."""

import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from models.errors import ExportError
from models.graphs.sessions import AnyArray, Feed
from models.graphs.writing.exchange import ANSWERS, FEEDS, MODEL, TYPES, load, save

_LAST_WORDS = 400
"""Characters of what a failed process said that a message quotes."""
_PROGRAM = "models.graphs.writing.answering"


@dataclass(frozen=True, eq=False)
class FreshRun:
    """What a file answered."""

    answers: tuple[Mapping[str, AnyArray], ...]
    """The outputs by name, for each feed."""
    node_types: Counter[str]
    """How many nodes of each operator run, after onnxruntime's optimizations."""


def fresh_run(content: bytes, feeds: Sequence[Feed], *, timeout_seconds: float = 600) -> FreshRun:
    """Load a file and run it on each feed, on one thread of a new process.

    The process has the caller's rights and limits: it is no confinement.

    Raises:
        ExportError: the process failed or took longer; quotes the end of what it said.
    """
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / MODEL).write_bytes(content)
        save(place / FEEDS, feeds)
        command = [sys.executable, "-P", "-m", _PROGRAM, folder, str(len(feeds))]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=timeout_seconds)
        except subprocess.CalledProcessError as error:
            said = bytes(error.stderr).decode(errors="replace").strip()[-_LAST_WORDS:]
            raise ExportError(f"the file does not run in a process of its own: {said}") from error
        except subprocess.TimeoutExpired as error:
            raise ExportError(
                f"the file did not answer within {timeout_seconds} s in a process of its own"
            ) from error
        types = json.loads((place / TYPES).read_text())
        return FreshRun(load(place / ANSWERS, len(feeds)), Counter(types))
