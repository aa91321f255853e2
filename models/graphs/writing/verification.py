"""Whether a file answers as it should."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from models.errors import ExportError
from models.graphs.sessions import AnyArray, Feed
from models.graphs.writing.fresh_process import FreshRun, fresh_run

TOLERANCE = 1e-5
"""Of the largest expected number of an output: onnxruntime may choose other kernels."""


def verify(
    content: bytes,
    feeds: Sequence[Feed],
    expected: Sequence[Mapping[str, AnyArray]],
    *,
    node_types: Counter[str] | None = None,
    tolerance: float = TOLERANCE,
) -> FreshRun:
    """Run a file in a fresh process, and compare its answers with those expected of each feed.

    `node_types` are the original's after optimization, where no factors run: then the file's must
    be the same, for all that was added is computed as the file is loaded.

    Raises:
        ExportError: the file does not run, an output differs by more than `tolerance` of its
            largest number, or its nodes differ; says which and by how much.
    """
    run = fresh_run(content, feeds)
    for place, (wanted, answer) in enumerate(zip(expected, run.answers, strict=True)):
        for name, value in wanted.items():
            _compare(f"{name} of sample {place}", value, answer.get(name), tolerance)
    if node_types is not None and run.node_types != node_types:
        more, fewer = run.node_types - node_types, node_types - run.node_types
        raise ExportError(
            f"the file runs other nodes than the original: {dict(more)} more, {dict(fewer)} fewer"
        )
    return run


def _compare(name: str, wanted: AnyArray, answer: AnyArray | None, tolerance: float) -> None:
    if answer is None or answer.shape != wanted.shape:
        found = "missing" if answer is None else list(answer.shape)
        raise ExportError(f"{name} is {found}; expected is shape {list(wanted.shape)}")
    if wanted.dtype.kind != "f":
        if not np.array_equal(wanted, answer):
            raise ExportError(f"{name} differs in {int((wanted != answer).sum())} entries")
        return
    if not wanted.size:
        return
    largest = float(np.abs(wanted).max())
    difference = float(np.abs(answer.astype(np.float64) - wanted.astype(np.float64)).max())
    # Not a number is never within a bound.
    if not difference <= tolerance * max(largest, np.finfo(np.float32).tiny):
        raise ExportError(
            f"{name} differs by {difference:.3g}; allowed is {tolerance} of {largest:.3g}"
        )
