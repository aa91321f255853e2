"""Measuring picks for the layers of a network of others; an agent's process holds the evaluator.

`Evaluator` makes and runs files, `probed_offers` says before that what each pick would lose, and
`handed_out` verifies a file in a fresh process and describes it.
"""

from search.graphs.evaluator.answered_parts import ByOutput
from search.graphs.evaluator.handing_out import HandedOut, TrainedFile, handed_out
from search.graphs.evaluator.layer_probing import probed_offers
from search.graphs.evaluator.network_evaluator import Evaluator
from search.graphs.network_report import (
    LayerReport,
    MetricReport,
    NetworkReport,
    PartReport,
    TrainingReport,
)

__all__ = [
    "ByOutput",
    "Evaluator",
    "HandedOut",
    "LayerReport",
    "MetricReport",
    "NetworkReport",
    "PartReport",
    "TrainedFile",
    "TrainingReport",
    "handed_out",
    "probed_offers",
]
