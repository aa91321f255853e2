"""The evaluator of a case on one split of its samples."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from models.graphs.reading import folded, graph_facts, read_graph
from search.graphs.evaluator import Evaluator
from search.graphs.metrics import DEFAULT_SHARES
from search.graphs.network_data import network_samples
from search.graphs.picks import Objective
from tests.benchmarks.networks.case import Case


def evaluator_of(
    case: Case,
    *,
    seed: int,
    shares: Sequence[float] = DEFAULT_SHARES,
    objectives: Sequence[Objective] = ("bytes",),
) -> Evaluator:
    """Of the network with its constants folded."""
    with tempfile.TemporaryDirectory() as folder:
        model = folded(read_graph(case.original), Path(folder)).model
    samples = network_samples(
        graph_facts(model).inputs,
        case.arrays,
        each=case.each,
        zeros=case.zeros,
        shares=shares,
        seed=seed,
    )
    return Evaluator(
        case.original,
        model,
        samples,
        outputs=case.outputs,
        metric=case.metric,
        objectives=objectives,
        seed=seed,
    )
