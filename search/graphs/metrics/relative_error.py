"""The share of the original's energy that a file's answers lose."""

import math
from typing import ClassVar, Literal

import numpy as np

from search.graphs.metrics.metric import Answers, Metric, Values, pairs


class RelativeError(Metric):
    """Squared differences as a share of the squared deviations of the original from its mean.

    The mean and the deviations are of all samples together; a file that always answers with the
    mean has 1.
    """

    title: ClassVar[str] = "error relative to the original"
    direction: ClassVar[Literal["minimize", "maximize"]] = "minimize"
    is_share: ClassVar[bool] = False
    span: ClassVar[tuple[float, float]] = (0.0, math.inf)

    kind: Literal["relative_error"] = "relative_error"

    def by_sample(self, original: Answers, found: Answers, labels: Answers | None = None) -> Values:  # noqa: ARG002
        """Each sample's squared differences over the deviations of a sample on average.

        Infinite where answers differ from those of an original that never changes.
        """
        errors = np.array(
            [((truth - answer) ** 2).sum() for truth, answer in pairs(original, found)]
        )
        numbers = np.concatenate([truth.reshape(-1).astype(np.float64) for truth in original])
        energy = ((numbers - numbers.mean()) ** 2).sum() / len(original)
        if energy == 0:
            return np.where(errors > 0, np.inf, 0.0)
        return errors / energy

    def decided(self, answers: Answers) -> None:  # noqa: ARG002
        """Nothing."""
        return
