"""The Kullback-Leibler divergence of a file's answers from the original's."""

import math
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from search.graphs.metrics.metric import (
    Answers,
    Classes,
    Metric,
    Values,
    classes,
    has_columns,
    joined,
    pairs,
    rows,
)

_SMALLEST = 1e-7
"""What probabilities are raised to: those of single precision can be 0."""


class Kl(Metric):
    """`sum_c p_c log(p_c / q_c)` in nats, the mean over rows; p is the original's."""

    title: ClassVar[str] = "KL divergence from the original"
    direction: ClassVar[Literal["minimize", "maximize"]] = "minimize"
    is_share: ClassVar[bool] = False
    span: ClassVar[tuple[float, float]] = (0.0, math.inf)

    kind: Literal["kl"] = "kl"
    logits: bool = Field(
        default=False, description="whether answers are logits; else they are probabilities"
    )
    column: bool = Field(
        default=False,
        description="whether each number is the probability of a yes; else each row on the last "
        "axis is a distribution. A number that is alone in its row is always one of its own",
    )

    def by_sample(self, original: Answers, found: Answers, labels: Answers | None = None) -> Values:  # noqa: ARG002
        """The mean over each sample's rows, in nats."""
        return np.array([self._divergence(*pair) for pair in pairs(original, found)])

    def decided(self, answers: Answers) -> Classes:
        """The most probable class of each row."""
        return joined(
            [classes(rows(answer), column=self.column, logits=self.logits) for answer in answers]
        )

    def _divergence(self, truth: Values, answer: Values) -> float:
        p, q = self._logarithms(truth), self._logarithms(answer)
        return float((np.exp(p) * (p - q)).sum(-1).mean())

    def _logarithms(self, answer: Values) -> Values:
        """Logarithms of distributions `[..., C]`, of two classes `[..., C, 2]` for columns."""
        if has_columns(answer, column=self.column):
            other = np.zeros_like(answer) if self.logits else 1 - answer
            answer = np.stack([answer, other], axis=-1)
        if not self.logits:
            answer = np.log(np.clip(answer, _SMALLEST, None))
        # In single precision rows add up to 1 but for rounding.
        answer = answer - answer.max(-1, keepdims=True)
        return answer - np.log(np.exp(answer).sum(-1, keepdims=True))
