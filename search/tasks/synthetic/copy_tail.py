"""The copy task that looks at the last ten steps alone."""

from typing import ClassVar, Literal

from pydantic import Field

from models.spec import Signature
from search.tasks.samples import IGNORED
from search.tasks.synthetic import copying
from search.tasks.synthetic.copying import DATA_STEPS, Alphabet, CopyMeter, Symbols
from search.tasks.synthetic.lagged_copy import CopyingTask
from search.tasks.task import Metric

_SYMBOLS = Alphabet(first=2, count=10, blank=1, signal=0)


class CopyTail(CopyingTask):
    """Ten symbols out of ten, blanks, a delimiter, and ten steps in which to repeat them.

    Inputs are one-hot: delimiter 0, blank 1, data 2 to 11; the delimiter comes eleven steps before
    the end. Only the last ten steps count in loss and metrics. The metric is the accuracy over
    them; its baseline, 0.1, is guessing one of ten symbols at random, whose `cross_entropy` is
    ln 10.
    """

    title: ClassVar[str] = "Copying, judged by the last ten steps"
    paper: ClassVar[str] = (
        "Dorobantu, Stromhaug, Renteria: DizzyRNN: Reparameterizing Recurrent Neural Networks for "
        "Norm-Preserving Backpropagation (2016, arXiv:1612.04035), as in its code"
    )

    alphabet: ClassVar[Alphabet] = _SYMBOLS

    kind: Literal["copy_tail"] = "copy_tail"
    steps: int = Field(
        default=100,
        ge=2 * DATA_STEPS + 1,
        le=10_000,
        description="in all; the paper's code has 100: a symbol is recalled 90 steps after it was "
        "shown",
    )
    train_samples: int = Field(
        default=10_000,
        ge=1,
        le=10_000_000,
        description="per epoch; the paper's code has 1,000 fresh ones, and 100 for tests",
    )

    @property
    def metric(self) -> Metric:
        """Accuracy over the last ten steps."""
        return Metric(
            name="accuracy",
            direction="maximize",
            unit="fraction of recalled symbols",
            baseline=1 / _SYMBOLS.count,
        )

    def signature(self) -> Signature:
        """Twelve symbols in and twelve logits out at each step."""
        return copying.signature(_SYMBOLS, steps=self.steps)

    def meter(self) -> CopyMeter:
        """Accuracy and cross-entropy over the last ten steps."""
        return CopyMeter(_SYMBOLS, accuracy="accuracy")

    def shown_and_answered(self, rows: Symbols) -> tuple[Symbols, Symbols]:
        """Symbols, blanks and the delimiter; only the last ten steps have answers."""
        data, _ = copying.drawn(self.seed, rows, _SYMBOLS)
        shown, answer = copying.sequences(
            data, _SYMBOLS, steps=self.steps, signal_at=self.steps - DATA_STEPS - 1
        )
        answer[:, :-DATA_STEPS] = IGNORED
        return shown, answer
