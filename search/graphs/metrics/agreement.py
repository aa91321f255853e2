"""How often a file decides what the original decides."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from search.graphs.metrics.metric import (
    Answers,
    Classes,
    Metric,
    Values,
    classes,
    joined,
    pairs,
    rows,
)


class Agreement(Metric):
    """The share of equal decisions among a sample's."""

    direction: ClassVar[Literal["minimize", "maximize"]] = "maximize"
    is_share: ClassVar[bool] = True

    kind: Literal["agreement"] = "agreement"
    logits: bool = Field(
        default=False, description="with column: whether yes is above 0; else it is above 0.5"
    )
    column: bool = Field(
        default=False,
        description="whether each number decides yes or no; else the largest of each row on the "
        "last axis decides. A number that is alone in its row always does",
    )

    def by_sample(self, original: Answers, found: Answers, labels: Answers | None = None) -> Values:  # noqa: ARG002
        """The share of each sample's decisions that are equal."""
        return np.array(
            [
                float(np.mean(np.equal(self._classes(truth), self._classes(answer))))
                for truth, answer in pairs(original, found)
            ]
        )

    def decided(self, answers: Answers) -> Classes:
        """All decisions."""
        return joined([self._classes(rows(answer)) for answer in answers])

    def _classes(self, answer: Values) -> Classes:
        return classes(answer, column=self.column, logits=self.logits)
