"""How often a file decides what the original decides."""

from typing import ClassVar, Literal

import numpy as np

from search.graphs.metrics.decision_metric import DecisionMetric
from search.graphs.metrics.metric import Answers, Values, pairs


class Agreement(DecisionMetric):
    """The share of equal decisions among a sample's."""

    title: ClassVar[str] = "agreement with the original"

    kind: Literal["agreement"] = "agreement"

    def by_sample(self, original: Answers, found: Answers, labels: Answers | None = None) -> Values:  # noqa: ARG002
        """The share of each sample's decisions that are equal."""
        return np.array(
            [
                float(np.mean(np.equal(self.classes_of(truth), self.classes_of(answer))))
                for truth, answer in pairs(original, found)
            ]
        )
