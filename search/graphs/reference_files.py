"""What other tools make of a network at their defaults: points to compare a front with."""

import logging
import tempfile
from pathlib import Path
from typing import Any

from models.errors import GraphRefused
from search.errors import TrainingDiverged
from search.graphs.evaluator import Evaluator
from search.graphs.metrics import reported_beside
from search.graphs.reference_documents import ReferenceFile

_LONGEST_REASON = 200


def reference_files(evaluator: Evaluator, *, has_labels: bool) -> tuple[ReferenceFile, ...]:
    """Onnxruntime's `quantize_dynamic` at its defaults, of the network with constants folded."""
    name = "quantize_dynamic"
    try:
        content = _dynamically_quantized(evaluator.model.SerializeToString())
    # What it raises has no common root; that it raises is what a user reads.
    except Exception as error:
        return (ReferenceFile(name=name, reason=_sentence(error)),)
    try:
        found = evaluator.answers(content, evaluator.choosing)
        values = {
            one.kind: evaluator.compared(evaluator.choosing, found, one).value
            for one in (
                evaluator.metric,
                *reported_beside(evaluator.metric, has_labels=has_labels),
            )
        }
    except (GraphRefused, TrainingDiverged) as error:
        return (ReferenceFile(name=name, bytes=len(content), reason=_sentence(error)),)
    return (
        ReferenceFile(
            name=name,
            bytes=len(content),
            quality=values[evaluator.metric.kind],
            agreement=values.get("agreement"),
        ),
    )


def _dynamically_quantized(model: bytes) -> bytes:
    # Most processes never need it, and it takes a second.
    from onnxruntime import quantization  # pyright: ignore[reportMissingTypeStubs]

    library: Any = quantization
    root = logging.getLogger()
    level = root.level
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "model.onnx", Path(folder) / "quantized.onnx"
        source.write_bytes(model)
        # It advises on the root logger what this is not for.
        root.setLevel(logging.ERROR)
        try:
            library.quantize_dynamic(source, target)
        finally:
            root.setLevel(level)
        return target.read_bytes()


def _sentence(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:_LONGEST_REASON]
