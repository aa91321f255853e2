"""A user's network with a user's data, ready to be measured; a worker's process holds it."""

import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from models.graphs.documents import GraphLimits
from models.graphs.reading import read_graph, with_fixed
from models.graphs.writing import predicted_bytes
from search.graphs.evaluator import Evaluator, HandedOut, handed_out, probed_offers
from search.graphs.metrics import reported_beside
from search.graphs.model_outputs import ModelOutputs
from search.graphs.network_trial import NetworkTrial
from search.graphs.offered_layers import OfferedLayers
from search.graphs.picks import LayerOffers, Objective
from search.graphs.reference_documents import ReferenceFile
from search.graphs.reference_files import reference_files
from search.uploads.graph_uploads import GraphReading, read_graph_file

_FEEDS = 2
"""How many runs on the user's data are tried in the confined process, before any outside of it."""

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class OpenedNetwork:
    """One network and its data."""

    task: ModelOutputs
    original: bytes
    """The file as it was uploaded, with inputs fixed."""
    evaluator: Evaluator
    kept_because: str | None
    """Why its constants are not folded; None: they are."""

    def offered(self) -> OfferedLayers:
        """Fit all layers in all ways, and probe each: what preparing a study finds."""
        evaluator = self.evaluator
        layers = probed_offers(evaluator)
        whole = sum(layer.stored_bytes for layer in evaluator.layers)
        numbers = sum(int(layer.matrices.size) for layer in evaluator.layers)
        return OfferedLayers(
            layers=layers,
            other_bytes=predicted_bytes(evaluator.model, evaluator.layers, {}) - whole,
            other_parameters=max(0, self.task.known.parameters - numbers),
        )

    def references(self) -> tuple[ReferenceFile, ...]:
        """What other tools make of the network."""
        return reference_files(self.evaluator, has_labels=self.task.labels is not None)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a user is told of the network and the data before any trial."""
        found = [self.evaluator.samples.split.warning]
        if self.kept_because is not None:
            found.append(f"constants stay as they are: {self.kept_because}")
        return tuple(one for one in found if one is not None)

    def handed_out(
        self, trial: NetworkTrial, sensitivities: Mapping[str, tuple[float, float]]
    ) -> HandedOut:
        """A trial's file, verified in a fresh process, and what is told of it.

        Raises:
            ExportError: the fresh process answers otherwise.
            TrainingDiverged: the file's answers are not finite.
            ConversionError: a layer cannot be stored so.
        """
        known = [LayerOffers(name, (), *pair) for name, pair in sensitivities.items()]
        return handed_out(
            self.evaluator,
            trial.picks,
            known,
            original=self.original,
            metrics=reported_beside(self.evaluator.metric, has_labels=self.task.labels is not None),
        )

    @cached_property
    def samples(self) -> dict[str, int]:
        """How many samples each part has, by the names that parts have of other tasks."""
        split = self.evaluator.samples.split
        return {
            "train": len(split.calibration),
            "validation": len(split.choosing),
            "test": len(split.test),
        }


def opened_network(
    content: bytes,
    arrays: Arrays,
    task: ModelOutputs,
    *,
    objectives: Sequence[Objective],
    limits: GraphReading | None = None,
) -> OpenedNetwork:
    """Read a network with its data, in a confined process first, and answer them by the original.

    Args:
        content: the file as it was uploaded.
        arrays: the data, by the arrays' names.
        task: resolved.
        objectives: what files may cost.
        limits: what the confined process may take.

    Raises:
        GraphRefused: the network is not taken, or does not run on the data.
        SpecRefused: the data do not fit, or the original's answers say nothing.
    """
    samples = task.samples(arrays)
    first = samples.feeds(samples.split.choosing)[:_FEEDS]
    with tempfile.TemporaryDirectory(prefix="network-") as folder:
        place = Path(folder)
        (place / "network.onnx").write_bytes(content)
        feeds = [place / f"feed-{number}.npz" for number in range(len(first))]
        for path, feed in zip(feeds, first, strict=True):
            _write_arrays(path, feed)
        found = read_graph_file(
            place / "network.onnx",
            out=place / "folded.onnx",
            fixed=task.fixed,
            feeds=feeds,
            limits=limits,
        )
        folded = onnx.load_model_from_string((place / "folded.onnx").read_bytes())
    original = content
    if task.fixed:
        allowed = GraphLimits() if limits is None else limits.graph
        whole = with_fixed(read_graph(content, allowed), task.fixed, allowed)
        original = whole.SerializeToString()
    labels = None if task.labels is None else list(arrays[task.labels])
    evaluator = Evaluator(
        original,
        folded,
        samples,
        outputs=task.outputs,
        metric=task.compared_by,
        labels=labels,
        objectives=objectives,
        seed=task.split_seed,
    )
    return OpenedNetwork(task, original, evaluator, found.kept_because)


def _write_arrays(path: Path, arrays: Arrays) -> None:
    # numpy's own `savez` takes names as keywords, and has one of its own.
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)
