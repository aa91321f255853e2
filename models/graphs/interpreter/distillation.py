"""Training the numbers of a compressed graph further, by the answers of the original."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from models.errors import InterpreterError
from models.graphs.interpreter.answer_losses import AnswerKind, answers_loss
from models.graphs.interpreter.graph_module import Feed, GraphModule, feed_tensors
from models.graphs.interpreter.rounded_weight import Numbers, Weight

Original: TypeAlias = Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]]
"""Outputs by name of inputs by name: a `GraphModule` of the original is one."""

MOST_RECOVERIES = 5
"""So often training goes on from its best step; what fails once more ends it."""
MOST_CACHED_BYTES = 256 << 20
"""Of the original's answers; those beyond are computed anew at each step."""
_SMALLEST_SIZE = 1e-3
"""Parameters smaller than this, as zero biases are, are moved as if they were of this size."""
_WARM_UP = 0.05
"""The share of the steps in which the rate grows to its full size."""


@dataclass(frozen=True, kw_only=True)
class DistillationOptions:
    """How a graph is trained."""

    answers: Mapping[str, AnswerKind]
    """The outputs that count, and what they are."""
    steps: int = 300
    """Batches in all, each of one feed."""
    learning_rate: float = 3e-3
    """Of Adam, as a share of the root mean square of each parameter tensor as it begins."""
    temperature: float = 2.0
    """T, which divides logits."""
    largest_gradient: float = 1.0
    """The norm of all gradients together that is let pass."""
    choose_every: int = 25
    """Steps between two looks at the choosing part."""
    seed: int = 0
    """Of the order of the feeds."""


@dataclass(frozen=True, kw_only=True)
class Look:
    """What is known when the choosing part is looked at; the module is in that state."""

    step: int
    train_loss: float | None
    """`T² KL` or the squared error, the mean over the steps since the last look where it is
    finite; None where there are none."""
    loss: float
    """Of the choosing part at T = 1."""


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What somebody makes of a look."""

    rank: tuple[float, ...]
    """The state with the least is the best one; of equals the first."""
    goes_on: bool = True
    """Whether training does."""


Judge: TypeAlias = Callable[[Look], Judgement]


def by_loss(look: Look) -> Judgement:
    """The best state is that of the least loss, and training goes on to its end."""
    return Judgement(rank=(look.loss,))


@dataclass(frozen=True, kw_only=True)
class Distilled:
    """What training brought."""

    trained: Mapping[str, np.ndarray[Any, Any]]
    """Initializers that were trained as they are, by name."""
    replaced: Mapping[str, Mapping[str, Numbers]]
    """What a file stores of each `Weight` that stands for an initializer, part by part."""
    before: float
    after: float
    """Loss of the choosing part at T = 1: mean KL, or the share of the variance that is lost."""
    best_step: int
    """When the state was best; 0: training brought nothing, and all is as it began."""
    steps: int
    """Steps that were taken."""
    recoveries: int
    """How often training went on from its best step, after a loss or a gradient was not finite."""
    curve: tuple[tuple[int, float], ...]
    """Step and loss of the choosing part at each look."""


def distil(
    module: GraphModule,
    original: Original,
    feeds: Sequence[Feed],
    choosing: Sequence[Feed],
    options: DistillationOptions,
    *,
    judge: Judge = by_loss,
) -> Distilled:
    """Train a graph to answer as the original does; the module ends in its best state.

    Steps go through the feeds in random order. The loss is `T² KL`, or the squared error, of the
    original's answers. After every few steps the choosing part is looked at, and the `judge` says
    how good the state is, and whether training goes on. Where a loss is not finite, training goes
    on from the best state at half the rate; the sixth time ends it. The rate grows over the first
    steps, and falls as a cosine to 0.

    Raises:
        InterpreterError: nothing is trained, an output is unknown, there are no feeds, or the
            answers are not finite before the first step.
    """
    _check(module, feeds, choosing, options)
    training = _Training(module, original, options, judge)
    goes_on = training.look(choosing, 0)
    order = _order(len(feeds), options.seed)
    taken = 0
    while goes_on and taken < options.steps and training.recoveries <= MOST_RECOVERIES:
        place = next(order)
        taken += 1
        if not training.step(place, feeds[place], taken):
            training.recover()
        if taken % options.choose_every == 0 or taken == options.steps:
            goes_on = training.look(choosing, taken)
    training.restore()
    return training.result(taken)


def _check(
    module: GraphModule,
    feeds: Sequence[Feed],
    choosing: Sequence[Feed],
    options: DistillationOptions,
) -> None:
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise InterpreterError("nothing is trained: name initializers, or replace some")
    if not feeds or not choosing:
        raise InterpreterError(
            f"{len(feeds)} feeds to train on and {len(choosing)} to choose by; each needs one"
        )
    unknown = sorted(options.answers.keys() - set(module.outputs))
    if unknown or not options.answers:
        raise InterpreterError(
            f"outputs {unknown} are unknown; name some of {list(module.outputs)}"
        )


def _order(count: int, seed: int) -> Iterator[int]:
    """All places in random order, again and again."""
    random = np.random.default_rng(seed)
    while True:
        yield from (int(place) for place in random.permutation(count))


class _Training:
    """A module between two steps."""

    def __init__(
        self, module: GraphModule, original: Original, options: DistillationOptions, judge: Judge
    ) -> None:
        self.module = module
        self.options = options
        self._judge = judge
        self._losses: list[float] = []
        """Of the steps since the last look."""
        self.recoveries = 0
        self.curve: list[tuple[int, float]] = []
        self._original = _Remembered(original, options.answers)
        self._parameters = [one for one in module.parameters() if one.requires_grad]
        self._sizes = [
            max(_SMALLEST_SIZE, float(one.detach().square().mean().sqrt()))
            for one in self._parameters
        ]
        self._optimizer = self._fresh_optimizer()
        self._share = 1.0
        self._best = self._state()
        self._least: tuple[float, ...] | None = None
        self._best_step, self._after = 0, math.inf

    def _fresh_optimizer(self) -> torch.optim.Adam:
        return torch.optim.Adam([{"params": [one], "lr": 0.0} for one in self._parameters])

    def step(self, place: int, feed: Feed, taken: int) -> bool:
        """Take one; False, and nothing is changed, where the loss or a gradient is not finite."""
        inputs = feed_tensors(feed, self.module.device)
        wanted = self._original.answers(place, inputs)
        self._optimizer.zero_grad(set_to_none=True)
        loss = answers_loss(
            self.module(inputs), wanted, self.options.answers, self.options.temperature
        )
        if not bool(torch.isfinite(loss)):
            return False
        loss.backward()  # pyright: ignore[reportUnknownMemberType] -- torch gives no type
        norm = nn.utils.clip_grad_norm_(self._parameters, self.options.largest_gradient)
        if not bool(torch.isfinite(norm)):
            return False
        rate = self._share * self.options.learning_rate * _schedule(taken, self.options.steps)
        for group, size in zip(self._optimizer.param_groups, self._sizes, strict=True):
            group["lr"] = rate * size
        self._optimizer.step()  # pyright: ignore[reportUnknownMemberType] -- as above
        self._losses.append(float(loss.detach()))
        return True

    @torch.no_grad()
    def look(self, choosing: Sequence[Feed], taken: int) -> bool:
        """Have the state judged, which is kept where it is the best; whether training goes on.

        Raises:
            InterpreterError: the answers are not finite before the first step.
        """
        loss = self._choosing_loss(choosing)
        if taken == 0 and not math.isfinite(loss):
            raise InterpreterError("the answers that training begins with are not finite")
        self.curve.append((taken, loss))
        mean = sum(self._losses) / len(self._losses) if self._losses else None
        self._losses = []
        found = self._judge(Look(step=taken, train_loss=mean, loss=loss))
        if self._least is None or found.rank < self._least:
            self._least, self._best_step, self._after = found.rank, taken, loss
            self._best = self._state()
        return found.goes_on

    def _choosing_loss(self, choosing: Sequence[Feed]) -> float:
        losses: list[float] = []
        for place, feed in enumerate(choosing):
            inputs = feed_tensors(feed, self.module.device)
            # The choosing part is remembered beside the other, by negative places.
            wanted = self._original.answers(-1 - place, inputs)
            losses.append(float(answers_loss(self.module(inputs), wanted, self.options.answers)))
        return sum(losses) / len(losses)

    def recover(self) -> None:
        """Go back to the best state, at half the rate and without momentum."""
        self.restore()
        self.recoveries += 1
        self._share /= 2
        self._optimizer = self._fresh_optimizer()

    @torch.no_grad()
    def restore(self) -> None:
        """The best state again."""
        for parameter, kept in zip(self._parameters, self._best, strict=True):
            parameter.copy_(kept)

    def _state(self) -> list[Tensor]:
        return [one.detach().clone() for one in self._parameters]

    def result(self, taken: int) -> Distilled:
        """What is to be known of the best state, which the module is in."""
        replaced = self.module.replacements()
        return Distilled(
            trained=self.module.trained(),
            replaced={
                name: one.stored() for name, one in replaced.items() if isinstance(one, Weight)
            },
            before=self.curve[0][1],
            after=self._after,
            best_step=self._best_step,
            steps=taken,
            recoveries=self.recoveries,
            curve=tuple(self.curve),
        )


def _schedule(taken: int, steps: int) -> float:
    """The share of the rate at a step, counted from 1."""
    warm = max(1, round(_WARM_UP * steps))
    if taken <= warm:
        return taken / warm
    return 0.5 * (1 + math.cos(math.pi * (taken - warm) / max(1, steps - warm)))


class _Remembered:
    """The original's answers, each computed once as far as there is room for them."""

    def __init__(self, original: Original, names: Mapping[str, AnswerKind]) -> None:
        self._original = original
        self._names = tuple(names)
        self._kept: dict[int, dict[str, Tensor]] = {}
        self._bytes = 0

    @torch.no_grad()
    def answers(self, place: int, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Outputs by name of the inputs that are always at this place."""
        if place in self._kept:
            return self._kept[place]
        found = self._original(inputs)
        wanted = {name: found[name].detach() for name in self._names}
        size = sum(one.numel() * one.element_size() for one in wanted.values())
        if self._bytes + size <= MOST_CACHED_BYTES:
            self._bytes += size
            self._kept[place] = wanted
        return wanted
