"""A user's network with a user's data, ready to be measured; a worker's process holds it."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import onnx
from numpy.typing import NDArray

from models.errors import ConversionError
from models.graphs.reading import read_graph, with_fixed, with_nodes_apart
from models.graphs.writing import predicted_bytes
from search.graphs.evaluator import (
    Evaluator,
    HandedOut,
    TrainedFile,
    handed_out,
    probed_offers,
)
from search.graphs.fine_tune import FineTune
from search.graphs.fine_tuning import AfterEpoch, fine_tuned, untrainable
from search.graphs.metrics import reported_beside
from search.graphs.model_outputs import ModelOutputs
from search.graphs.network_trial import NetworkTrial
from search.graphs.offered_layers import OfferedLayers
from search.graphs.picks import LayerOffers, Objective
from search.graphs.reference_documents import ReferenceFile
from search.graphs.reference_files import reference_files
from search.uploads.arrays import write_arrays
from search.uploads.graph_uploads import read_graph_file

_FEEDS = 2
"""How many runs on the user's data are tried in the confined process, before any outside of it."""

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class OpenedNetwork:
    """One network and its data."""

    task: ModelOutputs
    original: bytes
    """The file as it was uploaded, with inputs fixed and nodes of one name told apart."""
    evaluator: Evaluator
    kept_because: str | None
    """Why its constants are not folded; None: they are."""

    def offered(self, between: Callable[[], None] = lambda: None) -> OfferedLayers:
        """Fit all layers in all ways, and probe each: what preparing a study finds.

        `between` is called after each layer.
        """
        evaluator = self.evaluator
        layers = probed_offers(evaluator, between=between)
        whole = sum(layer.stored_bytes for layer in evaluator.layers)
        numbers = sum(int(layer.matrices.size) for layer in evaluator.layers)
        return OfferedLayers(
            layers=layers,
            other_bytes=predicted_bytes(evaluator.model, evaluator.layers, {}) - whole,
            other_parameters=max(0, self.task.known.parameters - numbers),
        )

    @cached_property
    def untrainable(self) -> str | None:
        """Why its numbers cannot be trained, in a sentence; None: they can."""
        return untrainable(self.evaluator)

    def fine_tuned(
        self, trial: NetworkTrial, how: FineTune, after_epoch: AfterEpoch
    ) -> TrainedFile:
        """A trial's file, its numbers trained further; `after_epoch` is called after each epoch.

        Raises:
            ConversionError: a layer cannot be stored so, or the network cannot be trained here.
            ExportError: the file answers something else than what was trained.
            InterpreterError: torch refuses what it is given in training.
            TrainingDiverged: losses or answers are not finite.
        """
        if self.untrainable is not None:
            raise ConversionError(f"nothing can be trained: {self.untrainable}")
        return fine_tuned(
            self.evaluator, trial.picks, how, seed=trial.seed, after_epoch=after_epoch
        )

    def references(self) -> tuple[ReferenceFile, ...]:
        """What other tools make of the network."""
        return reference_files(self.evaluator, has_labels=self.task.labels is not None)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the network and the data, before any trial."""
        found = [self.evaluator.samples.split.warning]
        if self.kept_because is not None:
            found.append(f"constants stay as they are: {self.kept_because}")
        if self.task.fine_tune is not None and self.untrainable is not None:
            found.append(f"nothing is trained further: {self.untrainable}")
        return tuple(one for one in found if one is not None)

    def handed_out(
        self,
        trial: NetworkTrial,
        sensitivities: Mapping[str, tuple[float, float]],
        trained: TrainedFile | None = None,
    ) -> HandedOut:
        """A trial's file, verified in a fresh process, and its report.

        `trained` is the file with other numbers, where these were trained.

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
            trained=trained,
        )

    @property
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
) -> OpenedNetwork:
    """Read a network with its data, in a confined process first, and answer them by the original.

    Args:
        content: the file as it was uploaded.
        arrays: the data, by the arrays' names.
        task: resolved.
        objectives: what files may cost.

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
            with path.open("wb") as stream:
                write_arrays(stream, feed)
        found = read_graph_file(
            place / "network.onnx",
            out=place / "folded.onnx",
            fixed=task.fixed,
            feeds=feeds,
        )
        folded = onnx.load_model_from_string((place / "folded.onnx").read_bytes())
    original = with_nodes_apart(content)
    if task.fixed:
        original = with_fixed(read_graph(content), task.fixed).SerializeToString()
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
