"""What every metric is: a number for each sample, by the original's answers and a file's."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from models.spec import Spec
from search.documents.readable import number
from search.errors import TrainingDiverged

Answers: TypeAlias = Sequence[NDArray[Any]]
"""One output's answers, an array `[..., C]` for each sample; leading axes are steps or places."""

Values: TypeAlias = NDArray[np.float64]
"""A number for each sample `[N]`."""

Classes: TypeAlias = NDArray[np.int64]


class Metric(Spec):
    """A distance or a likeness of two files' answers; the value is the mean over samples."""

    title: ClassVar[str]
    """What people call it: accuracy only where labels say what is right."""
    direction: ClassVar[Literal["minimize", "maximize"]]
    is_share: ClassVar[bool]
    """Whether a sample's value is a share of what is right, so that intervals can be given."""
    span: ClassVar[tuple[float, float]]
    """The least and the largest value, but for rounding."""
    needs_labels: ClassVar[bool] = False

    @classmethod
    def shown(cls, value: float | None) -> str:
        """A value as people read it: shares in percent."""
        if value is None or not cls.is_share:
            return number(value)
        return f"{100 * value:.2f} %"

    @abstractmethod
    def by_sample(self, original: Answers, found: Answers, labels: Answers | None = None) -> Values:
        """A value for each sample.

        Raises:
            TrainingDiverged: a file answers with NaN or Inf, or in another shape than the original.
        """

    @abstractmethod
    def decided(self, answers: Answers) -> Classes | None:
        """What the answers decide, as numbers of classes, of all samples in one array.

        None: nothing is decided.
        """


def pairs(original: Answers, found: Answers) -> Iterator[tuple[Values, Values]]:
    """Both answers to each sample, in double precision, with one axis or more.

    Raises:
        TrainingDiverged: see `Metric.by_sample`.
    """
    for place, (truth, answer) in enumerate(zip(original, found, strict=True)):
        if truth.shape != answer.shape:
            raise TrainingDiverged(
                f"the answer to sample {place} (from 0) has the shape {list(answer.shape)}; the "
                f"original's has {list(truth.shape)}"
            )
        if not np.isfinite(answer).all():
            raise TrainingDiverged(f"the answer to sample {place} (from 0) is not finite")
        yield rows(truth), rows(answer)


def rows(answer: NDArray[Any]) -> Values:
    """An answer `[..., C]` in double precision; a single number is a row of its own."""
    return np.atleast_1d(answer).astype(np.float64)


def classes(answer: Values, *, column: bool, logits: bool) -> Classes:
    """What an answer `[..., C]` decides: the largest of each row, or of each number yes or no."""
    if has_columns(answer, column=column):
        return (answer > (0.0 if logits else 0.5)).astype(np.int64)
    return answer.argmax(-1).astype(np.int64)


def has_columns(answer: Values, *, column: bool) -> bool:
    """Whether each number stands for itself, as those do that are alone in their row."""
    return column or answer.shape[-1] == 1


def joined(parts: Sequence[Classes]) -> Classes:
    """Classes of several samples in one array."""
    return np.concatenate([part.reshape(-1) for part in parts])
