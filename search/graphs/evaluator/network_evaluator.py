"""The evaluator: files of picks, their costs, and their answers beside the original's."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import onnx

from models.graphs.fits import statistics_of
from models.graphs.layers import find_layers
from models.graphs.sessions import AnyArray, Feed, GraphSession
from models.graphs.writing import written
from search.graphs.evaluator.answered_parts import (
    AnsweredPart,
    ByOutput,
    answers,
    joined_answers,
    joined_parts,
)
from search.graphs.evaluator.fit_cache import FitCache
from search.graphs.metrics import (
    Answers,
    AnyMetric,
    Comparison,
    Places,
    compared,
    default_metric,
    refuse_constant,
    refuse_unusable,
)
from search.graphs.network_data import NetworkSamples
from search.graphs.picks import (
    UNCHANGED,
    Costs,
    Measured,
    Objective,
    Pick,
    Picks,
    out_of_reach,
)

EARLY_SHARE = 8
"""One of so many samples of the choosing part is answered first."""


class Evaluator:
    """Measures trials of one network on one user's samples.

    What it finds follows from its arguments alone, apart from what other kernels round otherwise.
    """

    def __init__(
        self,
        original: bytes,
        model: onnx.ModelProto,
        samples: NetworkSamples,
        *,
        outputs: Sequence[str] | None = None,
        metric: AnyMetric | None = None,
        labels: Answers | None = None,
        objectives: Sequence[Objective] = ("bytes",),
        seed: int = 0,
    ) -> None:
        """Answer the choosing part by the original, and see what its layers read.

        Args:
            original: the file whose answers are the reference, with its constants as they were.
            model: the same network with constants folded, whose layers are stored anew.
            samples: see `network_samples`.
            outputs: which outputs count; None: all.
            metric: whose loss is searched; None: see `default_metric`.
            labels: for each sample, where the metric needs them.
            objectives: what a file may cost; decides which picks are of interest.
            seed: of the patches of convolutions that are looked at.

        Raises:
            GraphRefused: onnxruntime does not load or run one of the two.
            SpecRefused: the original's answers are not finite, differ between runs, or say nothing.
        """
        self.model, self.samples = model, samples
        self.objectives = tuple(objectives)
        self._original = GraphSession(original)
        self.outputs = tuple(self._original.outputs if outputs is None else outputs)
        self._labels = labels
        choosing = samples.split.choosing
        # Users sort their samples; an eighth that is spread out has something of all.
        first = choosing[::EARLY_SHARE]
        rest = choosing[[place for place in range(len(choosing)) if place % EARLY_SHARE]]
        self.early, self._rest = self._answered(first), self._answered(rest)
        self.choosing = joined_parts([self.early, self._rest])
        # In the same batches: how many are fed at once changes how sums round.
        again = [self._run(self._original, part.places) for part in (self.early, self._rest)]
        refuse_unusable(self.choosing.original, joined_answers(again))
        self.metric = metric or default_metric(self.choosing.original)
        refuse_constant(self.metric, self.choosing.original)
        self.layers = tuple(find_layers(model))
        calibration = samples.split.calibration
        feeds = samples.feeds(calibration)
        self.statistics = statistics_of(model, self.layers, feeds, seed=seed)
        self._layers = {layer.name: layer for layer in self.layers}
        self._positions = {
            name: found.positions * len(feeds) / len(calibration)
            for name, found in self.statistics.items()
        }
        self.fits = FitCache(self.layers, self.statistics)

    @cached_property
    def test(self) -> AnsweredPart:
        """The test part, which nothing is chosen by."""
        return self._answered(self.samples.split.test)

    def content(self, picks: Picks) -> bytes:
        """The file with each layer stored as picked.

        Raises:
            ConversionError: a layer cannot be stored so.
            ExportError: the network's operator set is below 11.
        """
        fits = {name: self.fits.fit(name, pick) for name, pick in picks.items()}
        return written(self.model, self.layers, fits).SerializeToString()

    def layer_multiply_adds(self, name: str, pick: Pick) -> float:
        """Of one layer, for one sample on average."""
        return self._positions[name] * pick.choice.multiply_adds(self._layers[name])

    def costs(self, picks: Picks, content: bytes) -> Costs:
        """What a file of these picks costs."""
        return Costs(bytes=len(content), multiply_adds=self.multiply_adds(picks))

    def multiply_adds(self, picks: Picks) -> float:
        """Of all layers, for one sample on average."""
        return sum(
            self.layer_multiply_adds(layer.name, picks.get(layer.name, UNCHANGED))
            for layer in self.layers
        )

    def measure(self, picks: Picks, front: Iterable[Measured] = ()) -> Measured:
        """A trial: the first eighth of the choosing part, and the rest if that is within reach.

        Args:
            picks: by layer.
            front: what was measured already; without any, everything is within reach.

        Raises:
            ConversionError: a layer cannot be stored so.
            TrainingDiverged: the file's answers are not finite; the picks are at fault.
        """
        content = self.content(picks)
        costs = self.costs(picks, content)
        session = GraphSession(content)
        first = self._run(session, self.early.places)
        early_loss = self.loss(self.early, first)
        if out_of_reach(early_loss, costs, front, self.objectives):
            return Measured(picks, costs, early_loss, None)
        rest = self._run(session, self._rest.places)
        loss = self.loss(self.choosing, joined_answers([first, rest]))
        return Measured(picks, costs, early_loss, loss)

    def original_answers(self, feed: Feed) -> Mapping[str, AnyArray]:
        """What the original answers in one run, by the names of outputs."""
        return self._original.run(feed, self.outputs)

    def answers(self, content: bytes, part: AnsweredPart) -> ByOutput:
        """What any file with the same inputs and outputs answers to the samples of a part.

        Raises:
            GraphRefused: onnxruntime does not load or run it.
        """
        return self._run(GraphSession(content), part.places)

    def compared(
        self, part: AnsweredPart, found: ByOutput, metric: AnyMetric | None = None
    ) -> Comparison:
        """Answers to a part beside the original's; by the metric that is searched, or another.

        Raises:
            TrainingDiverged: answers are not finite, or of another shape than the original's.
        """
        return compared(metric or self.metric, part.original, found, part.labels)

    def loss(self, part: AnsweredPart, found: ByOutput) -> float:
        """The metric as what is lost: 0 is as good as the original, or better.

        Raises:
            TrainingDiverged: see `compared`.
        """
        value = self.compared(part, found).value
        if self.metric.direction == "minimize":
            return max(0.0, value)
        return max(0.0, self.compared(part, part.original).value - value)

    def _answered(self, places: Places) -> AnsweredPart:
        labels: Answers | None = None
        if self._labels is not None:
            labels = [self._labels[int(place)] for place in places]
        return AnsweredPart(places, self._run(self._original, places), labels)

    def _run(self, session: GraphSession, places: Places) -> ByOutput:
        return answers(session, self.samples, places, self.outputs)
