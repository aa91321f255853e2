"""The copy task: ten symbols are to be repeated after a fixed lag."""

from typing import ClassVar, Literal

from pydantic import Field

from search.tasks.synthetic import copying
from search.tasks.synthetic.copying import DATA_STEPS, EIGHT_SYMBOLS, Symbols
from search.tasks.synthetic.lagged_copy import LaggedCopy


class Copy(LaggedCopy):
    """Ten symbols out of eight, T - 1 blanks, a signal, and ten steps in which to repeat them.

    Inputs are one-hot: data 0 to 7, blank 8, signal 9, which comes at step T + 9. The target is
    blank for T + 10 steps and then the data. The metric is the mean cross-entropy over all T + 20
    steps; its baseline, 10 ln 8 / (T + 20), answers blank where that is right and guesses among the
    eight symbols in the last ten steps. `recall_accuracy` is over the last ten steps.
    """

    title: ClassVar[str] = "Copying after a fixed lag"
    paper: ClassVar[str] = (
        "Hochreiter, Schmidhuber: Long Short-Term Memory (Neural Computation 9, 1997), in the form "
        "of Arjovsky, Shah, Bengio: Unitary Evolution Recurrent Neural Networks (ICML 2016, "
        "arXiv:1511.06464)"
    )

    kind: Literal["copy"] = "copy"
    lag: int = Field(
        default=100,
        ge=1,
        le=10_000,
        description="T: steps from the last symbol shown to the signal; usual are 100, 200, 300 "
        "and 500",
    )
    train_samples: int = Field(
        default=10_000,
        ge=1,
        le=10_000_000,
        description="per epoch; 100,000 for unitary RNNs and low-rank GRUs, with 10,000 for tests",
    )

    def shown_and_answered(self, rows: Symbols) -> tuple[Symbols, Symbols]:
        """See `LaggedCopy`."""
        data, _ = copying.drawn(self.seed, rows, EIGHT_SYMBOLS)
        return copying.sequences(
            data, EIGHT_SYMBOLS, steps=self.steps, signal_at=self.lag + DATA_STEPS - 1
        )
