"""Whether a file that a worker sends can be that of a trial of a network of others."""

from collections.abc import Mapping
from typing import BinaryIO

from models.errors import CheckpointError
from search.graphs.network_report import NetworkReport
from search.graphs.picks import UNCHANGED
from search.training.network_jobs import EvaluateJob

_OFF_BY = 0.05
_OF_A_LAYER = 2048
"""By so much of the prediction, and so many bytes for each layer, a file may differ from it."""
_DOCUMENT = 64 << 10
_REPORT_OF_A_LAYER = 4 << 10
"""Bytes of a report beyond its layers, and for each of them."""
_ONNX_BEGINS = b"\x08"
"""A model's first field is the version of the format. More of it nobody reads here: what runs of a
file runs where it was made."""


def check_compressed(stream: BinaryIO, size: int, job: EvaluateJob) -> None:
    """Hold a network's file against what it was predicted to take.

    Raises:
        CheckpointError: it is larger or smaller than any file of the trial's picks.
    """
    wanted = job.trial.bytes
    apart = int(_OFF_BY * wanted) + _OF_A_LAYER * (1 + len(job.sensitivities))
    if abs(size - wanted) > apart:
        raise CheckpointError(
            f"it has {size} bytes; predicted are {wanted}, and allowed {apart} more or fewer"
        )
    if stream.read(1) != _ONNX_BEGINS:
        raise CheckpointError("it does not begin as an ONNX file does")


def check_network_report(stream: BinaryIO, size: int, job: EvaluateJob) -> None:
    """Hold a network's report against the trial's picks.

    Raises:
        CheckpointError: it is too long, or tells of other layers or other picks.
        ValueError: it is no such report.
    """
    most = _DOCUMENT + _REPORT_OF_A_LAYER * len(job.sensitivities)
    if size > most:
        raise CheckpointError(f"it has {size} bytes; allowed are {most}")
    report = NetworkReport.model_validate_json(stream.read())
    reported: Mapping[str, object] = {layer.name: layer.choice for layer in report.layers}
    if {*reported} != {*job.sensitivities}:
        raise CheckpointError("it tells of other layers than the study's network has")
    for name, choice in reported.items():
        if choice != job.trial.picks.get(name, UNCHANGED).choice:
            raise CheckpointError(f"it tells of another choice for the layer {name!r}")
