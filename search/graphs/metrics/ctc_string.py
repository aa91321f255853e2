"""How often a file reads the string that the original reads (CTC).

Source: "best path decoding" of Graves et al.: Connectionist Temporal Classification (ICML 2006).
"""

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from search.errors import TrainingDiverged
from search.graphs.metrics.metric import Answers, Classes, Metric, Values, pairs, rows

String = tuple[int, ...]


class CtcString(Metric):
    """The share of equal strings among a sample's: answers are `[..., T, C]`, over C symbols."""

    title: ClassVar[str] = "strings equal to those of the original"
    direction: ClassVar[Literal["minimize", "maximize"]] = "maximize"
    is_share: ClassVar[bool] = True
    span: ClassVar[tuple[float, float]] = (0.0, 1.0)

    kind: Literal["ctc_string"] = "ctc_string"
    blank: int = Field(default=0, ge=0, description="the symbol that stands for none")

    def by_sample(self, original: Answers, found: Answers, labels: Answers | None = None) -> Values:  # noqa: ARG002
        """Whether each sample's string is equal; of several, the share."""
        shares: list[float] = []
        for truth, answer in pairs(original, found):
            both = zip(self._strings(truth), self._strings(answer), strict=True)
            shares.append(float(np.mean([wanted == read for wanted, read in both])))
        return np.array(shares)

    def decided(self, answers: Answers) -> Classes:
        """A number for each string that is read."""
        strings = [string for answer in answers for string in self._strings(rows(answer))]
        numbers = {string: number for number, string in enumerate(dict.fromkeys(strings))}
        return np.array([numbers[string] for string in strings], dtype=np.int64)

    def _strings(self, answer: Values) -> list[String]:
        if answer.ndim < 2:
            raise TrainingDiverged(
                f"a string is read from answers [steps, symbols]; they are {list(answer.shape)}"
            )
        steps = answer.argmax(-1).reshape(-1, answer.shape[-2])
        return [self._string(line) for line in steps]

    def _string(self, steps: Classes) -> String:
        """Repeats count once, and blanks not at all."""
        begins = np.ones(len(steps), dtype=bool)
        begins[1:] = steps[1:] != steps[:-1]
        kept = steps[begins & (steps != self.blank)]
        return tuple(int(symbol) for symbol in kept)
