"""What metrics have in common that compare what answers decide."""

from typing import ClassVar, Literal

from pydantic import Field

from search.graphs.metrics.metric import Answers, Classes, Metric, Values, classes, joined, rows


class DecisionMetric(Metric):
    """A share of decisions: the largest of each row, or each number by itself."""

    direction: ClassVar[Literal["minimize", "maximize"]] = "maximize"
    is_share: ClassVar[bool] = True
    span: ClassVar[tuple[float, float]] = (0.0, 1.0)

    logits: bool = Field(
        default=False, description="with column: whether yes is above 0; else it is above 0.5"
    )
    column: bool = Field(
        default=False,
        description="whether each number decides yes (1) or no (0); else the largest of each row "
        "on the last axis decides. A number that is alone in its row always does",
    )

    def decided(self, answers: Answers) -> Classes:
        """All decisions."""
        return joined([self.classes_of(rows(answer)) for answer in answers])

    def classes_of(self, answer: Values) -> Classes:
        """What one answer `[..., C]` decides."""
        return classes(answer, column=self.column, logits=self.logits)
