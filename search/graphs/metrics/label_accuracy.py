"""How often a file decides what labels say."""

from typing import ClassVar, Literal

import numpy as np

from search.errors import Fault, SpecRefused
from search.graphs.metrics.decision_metric import DecisionMetric
from search.graphs.metrics.metric import Answers, Values, pairs


class LabelAccuracy(DecisionMetric):
    """The share of a sample's decisions that are its labels.

    The original's own accuracy is that of its answers in both places.
    """

    title: ClassVar[str] = "accuracy"
    needs_labels: ClassVar[bool] = True

    kind: Literal["labels"] = "labels"

    def by_sample(self, original: Answers, found: Answers, labels: Answers | None = None) -> Values:
        """The share of each sample's decisions that are right.

        Raises:
            SpecRefused: there are no labels, or a sample's have another shape than its decisions.
            TrainingDiverged: see `Metric.by_sample`.
        """
        if labels is None:
            raise SpecRefused([Fault("task.labels", "missing; the metric 'labels' needs them")])
        values: list[float] = []
        for place, ((_, answer), label) in enumerate(
            zip(pairs(original, found), labels, strict=True)
        ):
            decided = self.classes_of(answer)
            # One decision may stand in a row of its own.
            if label.size != decided.size or label.dtype.kind not in "biu":
                raise SpecRefused(
                    [
                        Fault(
                            "task.labels",
                            f"sample {place} (from 0) has labels {list(label.shape)} of "
                            f"{label.dtype}; whole numbers {list(decided.shape)} are needed",
                        )
                    ]
                )
            values.append(float(np.mean(np.equal(decided.reshape(-1), label.reshape(-1)))))
        return np.array(values)
