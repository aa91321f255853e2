"""The cosine of a file's answers and the original's, such as embeddings."""

from typing import ClassVar, Literal

import numpy as np

from search.graphs.metrics.metric import Answers, Metric, Values, pairs


class Cosine(Metric):
    """The cosine of the angle between rows on the last axis, the mean over a sample's rows."""

    title: ClassVar[str] = "cosine with the original"
    direction: ClassVar[Literal["minimize", "maximize"]] = "maximize"
    is_share: ClassVar[bool] = False
    span: ClassVar[tuple[float, float]] = (-1.0, 1.0)

    kind: Literal["cosine"] = "cosine"

    def by_sample(self, original: Answers, found: Answers, labels: Answers | None = None) -> Values:  # noqa: ARG002
        """The mean over each sample's rows; of two rows of zeros 1, of one of them 0."""
        return np.array([_cosines(*pair).mean() for pair in pairs(original, found)])

    def decided(self, answers: Answers) -> None:  # noqa: ARG002
        """Nothing."""
        return


def _cosines(truth: Values, answer: Values) -> Values:
    lengths = np.linalg.norm(truth, axis=-1) * np.linalg.norm(answer, axis=-1)
    both_zero = ~truth.any(-1) & ~answer.any(-1)
    products = (truth * answer).sum(-1)
    known = lengths > 0
    cosines = np.divide(products, lengths, out=np.zeros_like(products), where=known)
    return np.where(both_zero, 1.0, cosines)
