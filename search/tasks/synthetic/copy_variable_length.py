"""The copy task with data of different lengths."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from search.tasks.synthetic import copying, hashed
from search.tasks.synthetic.copying import DATA_STEPS, EIGHT_SYMBOLS, Symbols
from search.tasks.synthetic.lagged_copy import LaggedCopy


class CopyVariableLength(LaggedCopy):
    """L symbols out of eight, L uniform in 1 to 10, to be repeated after a lag of T.

    Inputs are one-hot: data 0 to 7 at steps 0 to L - 1, signal 9 at step L + T - 1, else blank 8.
    The target is the data at steps L + T to 2 L + T - 1 of T + 20, else blank. The metric is the
    mean cross-entropy over all steps; its baseline, 5.5 ln 8 / (T + 20), knows when it has to
    answer, 5.5 steps on average, and guesses among the eight symbols then. `recall_accuracy` is
    over those steps.
    """

    title: ClassVar[str] = "Copying of different lengths"
    paper: ClassVar[str] = (
        "Danihelka, Wayne, Uria, Kalchbrenner, Graves: Associative Long Short-Term Memory (ICML "
        "2016, arXiv:1602.03032), in the form of Miceli Barone: Low-rank passthrough neural "
        "networks (2016, arXiv:1603.03116)"
    )

    symbols_to_recall: ClassVar[float] = (1 + DATA_STEPS) / 2

    kind: Literal["copy_variable_length"] = "copy_variable_length"
    lag: int = Field(
        default=100,
        ge=1,
        le=10_000,
        description="T: steps from the last symbol shown to the signal; low-rank GRUs had 100",
    )
    train_samples: int = Field(
        default=10_000,
        ge=1,
        le=10_000_000,
        description="per epoch; low-rank GRUs had 100,000, and 10,000 for tests",
    )

    def shown_and_answered(self, rows: Symbols) -> tuple[Symbols, Symbols]:
        """See `LaggedCopy`."""
        data, further = copying.drawn(self.seed, rows, EIGHT_SYMBOLS)
        length = 1 + hashed.below(further, DATA_STEPS)
        data[np.arange(DATA_STEPS) >= length[:, None]] = EIGHT_SYMBOLS.blank
        return copying.sequences(
            data, EIGHT_SYMBOLS, steps=self.steps, signal_at=length + self.lag - 1
        )
