"""One trial's numbers, trained by the original's answers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import onnx
import torch
from onnx import helper, numpy_helper
from torch import Tensor

from models.errors import ExportError
from models.graphs.fits import local_error
from models.graphs.interpreter import (
    DistillationOptions,
    Distilled,
    GraphModule,
    Judgement,
    Look,
    distil,
    equal_to_runtime,
    feed_tensors,
    trainable_names,
)
from models.graphs.interpreter.equality import difference
from models.graphs.sessions import GraphSession
from models.graphs.writing import written
from search.errors import TrainingDiverged
from search.graphs.evaluator import Evaluator, TrainedFile, TrainingReport
from search.graphs.fine_tune import FineTune
from search.graphs.fine_tuning.answer_kinds import answer_kinds
from search.graphs.fine_tuning.layer_weights import LayerWeight
from search.graphs.picks import Picks

_OWN = 10
"""How many times as much as the network itself a file may differ from the module that it is of, for
factors are applied in another order."""
TOLERANCE = 1e-3
"""Of the largest number of an output, by which it may differ in any case."""


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """What is known after an epoch."""

    number: int
    """0: nothing was trained yet."""
    train_loss: float | None
    """The distillation loss, the mean over the epoch's steps; None at 0."""
    value: float
    """The metric, of what the file answers to the choosing part."""


AfterEpoch: TypeAlias = Callable[[Epoch], bool]
"""Says whether training goes on."""


def fine_tuned(
    evaluator: Evaluator,
    picks: Picks,
    how: FineTune,
    *,
    seed: int,
    after_epoch: AfterEpoch,
) -> TrainedFile:
    """The file of these picks with its numbers trained by the original's answers.

    Samples of the calibration part are learned from. After each epoch the file is written and
    answers the choosing part; the one that loses least by the metric is kept, and of those that
    lose the same the one whose answers are nearest. The first is the untrained one. The test part
    is not touched.

    Args:
        evaluator: of a network that is not `untrainable`.
        picks: by layer; those that are left out and biases are trained as they are.
        how: for how long, and so on.
        seed: of the order in which samples are seen.
        after_epoch: called after each epoch, the untrained one first.

    Raises:
        ConversionError: a layer cannot be stored so.
        ExportError: the file answers something else than what was trained.
        InterpreterError: torch does not compute the network.
        TrainingDiverged: losses or the file's answers are not finite.
    """
    return _Tuning(evaluator, picks, how, seed).run(after_epoch)


class _Tuning:
    """One trial while it is trained."""

    def __init__(self, evaluator: Evaluator, picks: Picks, how: FineTune, seed: int) -> None:
        self._evaluator, self._how, self._seed = evaluator, how, seed
        self._layers = {layer.name: layer for layer in evaluator.layers}
        self._weights = {
            name: LayerWeight(self._layers[name], evaluator.fits.fit(name, pick))
            for name, pick in picks.items()
            if not pick.choice.unchanged
        }
        replaced = {self._layers[name].weight: one for name, one in self._weights.items()}
        others = [name for name in trainable_names(evaluator.model) if name not in replaced]
        self._module = GraphModule(evaluator.model, others, replaced)
        samples = evaluator.samples
        self._feeds = samples.feeds(samples.split.calibration, batch=how.batch_size)
        self._losses: list[float] = []
        """Of the metric, after each epoch."""

    def run(self, after_epoch: AfterEpoch) -> TrainedFile:
        """Train, and write the best state."""
        stopped = False

        def judged(look: Look) -> Judgement:
            nonlocal stopped
            epoch, loss = self._epoch(look)
            self._losses.append(loss)
            stopped = not after_epoch(epoch)
            return Judgement(rank=(loss, look.loss), goes_on=not stopped)

        evaluator, per_epoch = self._evaluator, len(self._feeds)
        choosing = evaluator.samples.feeds(evaluator.choosing.places)
        options = DistillationOptions(
            answers=answer_kinds(evaluator.metric, evaluator.choosing.original),
            steps=self._how.epochs * per_epoch,
            learning_rate=self._how.learning_rate,
            temperature=self._how.temperature,
            largest_gradient=self._how.largest_gradient,
            choose_every=per_epoch,
            seed=self._seed,
        )
        found = distil(self._module, self._original, self._feeds, choosing, options, judge=judged)
        if found.steps < options.steps and not stopped:
            raise TrainingDiverged(
                f"losses were not finite {found.recoveries} times, in the end at step "
                f"{found.steps} of {options.steps}"
            )
        return self._file(found)

    def _epoch(self, look: Look) -> tuple[Epoch, float]:
        """What the choosing part says of the file as it is now, and how much it loses."""
        number = look.step // len(self._feeds)
        if number and look.train_loss is None:
            raise TrainingDiverged(f"no loss of epoch {number} is finite")
        evaluator, part = self._evaluator, self._evaluator.choosing
        answers = evaluator.answers(self._content(), part)
        value = evaluator.compared(part, answers).value
        train_loss = None if look.train_loss is None else max(0.0, look.train_loss)
        return Epoch(number=number, train_loss=train_loss, value=value), evaluator.loss(
            part, answers
        )

    def _original(self, inputs: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        # The file itself is the teacher, as it is the reference of everything else.
        types = {name: value.dtype for name, value in self._feeds[0].items()}
        feed = {name: value.cpu().numpy().astype(types[name]) for name, value in inputs.items()}
        return feed_tensors(self._evaluator.original_answers(feed), self._module.device)

    def _content(self) -> bytes:
        """The file of the module's numbers."""
        model = _with_numbers(self._evaluator.model, self._module)
        fits = {name: weight.fit() for name, weight in self._weights.items()}
        return written(model, self._evaluator.layers, fits).SerializeToString()

    def _file(self, found: Distilled) -> TrainedFile:
        best, epochs = (step // len(self._feeds) for step in (found.best_step, found.steps))
        content = self._content()
        self._refuse_other_answers(content)
        return TrainedFile(
            content=content,
            errors=self._errors(),
            told=TrainingReport(
                epochs=epochs,
                best_epoch=best,
                loss_before=self._losses[0],
                loss_after=self._losses[best],
            ),
        )

    def _errors(self) -> dict[str, float]:
        """Of all layers, those that are stored as they were included."""
        statistics, trained = self._evaluator.statistics, self._module.trained()
        found = {name: one.error(statistics[name]) for name, one in self._weights.items()}
        for layer in self._evaluator.layers:
            if layer.weight in trained:
                matrices = layer.role.arrangement.arranged(trained[layer.weight])
                found[layer.name] = local_error(layer, statistics[layer.name], matrices)
        return found

    def _refuse_other_answers(self, content: bytes) -> None:
        """Hold the file's answers to the choosing part against those of the module."""
        # As torch is held against the runtime: without roundings that the file does not ask for.
        session = GraphSession(content, level="ORT_ENABLE_BASIC")
        names = self._evaluator.outputs
        feeds = self._evaluator.samples.feeds(self._evaluator.choosing.places)
        allowed = TOLERANCE
        for feed in feeds:
            answers = session.run(feed, names)
            with torch.no_grad():
                computed = self._module(feed_tensors(feed, self._module.device))
            for name in names:
                apart = difference(answers[name], computed[name].float().cpu().numpy())
                if not apart <= allowed:
                    # Some networks amplify what sums round, and their files do so too.
                    model = self._evaluator.model
                    own = equal_to_runtime(model, GraphModule(model), feeds).difference
                    allowed = max(TOLERANCE, _OWN * own)
                if not apart <= allowed:
                    raise ExportError(
                        f"{name} of the trained file differs by {apart:.3g} of its largest number "
                        f"from what was trained; allowed is {allowed:.3g}"
                    )


def _with_numbers(model: onnx.ModelProto, module: GraphModule) -> onnx.ModelProto:
    """A copy of a model with the initializers that were trained as they are."""
    trained = module.trained()
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for tensor in made.graph.initializer:
        if tensor.name in trained:
            element = helper.tensor_dtype_to_np_dtype(tensor.data_type)
            numbers = trained[tensor.name].astype(element)
            tensor.CopyFrom(numpy_helper.from_array(numbers, tensor.name))
    return made
