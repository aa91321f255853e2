"""What the problems that an upload can pose differ in, when one trains for them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from models.interface import AnyAnswer, Classes, Labels, Numbers
from search.tasks.classification import AccuracyMeter, cross_entropy
from search.tasks.dataset.drawing import drawn_rows
from search.tasks.dataset.forecasting import windows_of
from search.tasks.dataset.regression import RegressionMeter, squared_error
from search.tasks.dataset.scaling import Scaling, measured
from search.tasks.multilabel.labels import LabelMeter, binary_cross_entropy
from search.tasks.soft_targets import soft_classes, soft_labels, soft_numbers
from search.tasks.task import Meter
from search.uploads.container import Decoded
from search.uploads.dataset_metadata import Problem


@dataclass(frozen=True, kw_only=True)
class Part:
    """The samples of one split: x `[N, T, F]`, y as the loss takes it, lengths `[N]`."""

    x: NDArray[np.float32]
    y: NDArray[np.float32] | NDArray[np.int64]
    lengths: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Cut:
    """How samples are made of an upload and divided; the fields of `Dataset` say more."""

    validation_share: float
    test_share: float
    seed: int
    window: int


@dataclass(frozen=True, kw_only=True)
class ProblemTraits:
    """One kind of problem."""

    metric: str
    direction: Literal["maximize", "minimize"] = "minimize"
    unit: str
    output_steps: Literal["last", "every"] = "last"
    parts: Callable[[Decoded, Cut], Mapping[str, Part]]
    """The samples of the three splits, by name."""
    baseline: Callable[[Part], float]
    """What the trivial predictor gets on training samples that are not scaled."""
    target_scaling: Callable[[Part, Scaling], Scaling | None]
    """That of the targets, from the training samples and their features' scaling."""
    loss: Callable[[Tensor, Tensor], Tensor]
    soft_loss: Callable[[Tensor, Tensor, Tensor, float], Tensor]
    """See `search.tasks.soft_targets`."""
    answer: Callable[[tuple[str, ...], Scaling | None], AnyAnswer]
    """What a model's output means, from the names of classes or labels and the targets' scaling."""
    meter: Callable[[Sequence[float] | None], Meter]
    """A meter, from the deviations that targets were divided by."""


def _drawn(decoded: Decoded, cut: Cut, *, classes: NDArray[np.int64] | None) -> Mapping[str, Part]:
    y = decoded.y
    assert y is not None, "a problem with targets"
    steps = decoded.x.shape[1]
    lengths = decoded.lengths
    if lengths is None:
        lengths = np.full(len(decoded.x), steps, dtype=np.int64)
    rows = drawn_rows(
        decoded.split,
        classes=classes,
        validation_share=cut.validation_share,
        test_share=cut.test_share,
        seed=cut.seed,
    )
    return {
        name: Part(x=decoded.x[chosen], y=y[chosen], lengths=lengths[chosen])
        for name, chosen in rows.items()
    }


def _drawn_evenly(decoded: Decoded, cut: Cut) -> Mapping[str, Part]:
    assert decoded.y is not None, "a problem with targets"
    return _drawn(decoded, cut, classes=decoded.y.astype(np.int64))


def _drawn_at_random(decoded: Decoded, cut: Cut) -> Mapping[str, Part]:
    return _drawn(decoded, cut, classes=None)


def _windows(decoded: Decoded, cut: Cut) -> Mapping[str, Part]:
    steps = decoded.x.shape[1]
    lengths = [steps] * len(decoded.x) if decoded.lengths is None else decoded.lengths.tolist()
    found = windows_of(
        decoded.x,
        lengths,
        decoded.split,
        window=cut.window,
        validation_share=cut.validation_share,
        test_share=cut.test_share,
    )
    return {
        name: Part(
            x=windows[:, :-1],
            y=windows[:, 1:],
            lengths=np.full(len(windows), cut.window, dtype=np.int64),
        )
        for name, windows in found.items()
    }


def _largest_class(part: Part) -> float:
    """The share of the most frequent class: always answering it."""
    return float(np.unique(part.y, return_counts=True)[1].max() / len(part.y))


def _variance(part: Part) -> float:
    """The mean over the targets of their variance: always answering their mean."""
    return float(np.var(part.y, axis=0, dtype=np.float64).mean())


def _entropy_of_labels(part: Part) -> float:
    """The labels' mean entropy: always answering their frequencies."""
    frequency = np.atleast_1d(part.y.mean(axis=0, dtype=np.float64))
    # A label that never or always occurs is no surprise: 0 log 0 is 0.
    inner = frequency[(frequency > 0) & (frequency < 1)]
    entropies = -inner * np.log(inner) - (1 - inner) * np.log1p(-inner)
    return float(entropies.sum() / len(frequency))


def _persistence(part: Part) -> float:
    """The squared error of answering each time what was seen last."""
    return float(np.mean((part.y - part.x).astype(np.float64) ** 2))


def _unscaled(_part: Part, _inputs: Scaling) -> Scaling | None:
    return None


def _own_scaling(part: Part, _inputs: Scaling) -> Scaling | None:
    return measured(part.y.astype(np.float32, copy=False))


def _inputs_scaling(_part: Part, inputs: Scaling) -> Scaling | None:
    # What is foretold is read in the next step.
    return inputs


def _in_their_unit(_names: tuple[str, ...], targets: Scaling | None) -> Numbers:
    if targets is None:
        return Numbers()
    return Numbers(means=targets.means, deviations=targets.deviations)


_numbers = partial(
    ProblemTraits,
    answer=_in_their_unit,
    metric="mse",
    loss=squared_error,
    soft_loss=soft_numbers,
    meter=RegressionMeter,
)
"""What is asked for are numbers."""

PROBLEMS: Mapping[Problem, ProblemTraits] = {
    "classification": ProblemTraits(
        metric="accuracy",
        direction="maximize",
        unit="fraction of samples",
        parts=_drawn_evenly,
        baseline=_largest_class,
        target_scaling=_unscaled,
        answer=lambda names, _targets: Classes(classes=names),
        loss=cross_entropy,
        soft_loss=soft_classes,
        meter=lambda _deviations: AccuracyMeter(),
    ),
    "regression": _numbers(
        unit="square of the target's unit",
        parts=_drawn_at_random,
        baseline=_variance,
        target_scaling=_own_scaling,
    ),
    "multilabel": ProblemTraits(
        metric="bce",
        unit="nats per label",
        parts=_drawn_at_random,
        baseline=_entropy_of_labels,
        target_scaling=_unscaled,
        answer=lambda names, _targets: Labels(labels=names),
        loss=binary_cross_entropy,
        soft_loss=soft_labels,
        meter=lambda _deviations: LabelMeter(),
    ),
    "forecasting": _numbers(
        unit="square of the series' unit",
        output_steps="every",
        parts=_windows,
        baseline=_persistence,
        target_scaling=_inputs_scaling,
    ),
}
"""By the name that the facts of an upload give them."""
