"""The copy task with a signal that comes at any time."""

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from search.tasks.synthetic import copying, hashed
from search.tasks.synthetic.copying import DATA_STEPS, EIGHT_SYMBOLS, Symbols
from search.tasks.synthetic.lagged_copy import LaggedCopy


class CopyVariableLag(LaggedCopy):
    """Ten symbols out of eight, to be repeated after a lag r that is uniform in 1 to T.

    Inputs are one-hot: data 0 to 7 at steps 0 to 9, signal 9 at step 9 + r, else blank 8. The
    target is the data at steps 10 + r to 19 + r of T + 20, else blank. The metric is the mean
    cross-entropy over all steps; its baseline, 10 ln 8 / (T + 20), answers blank up to the signal
    and guesses among the eight symbols in the ten steps behind it. `recall_accuracy` is over those
    steps.
    """

    title: ClassVar[str] = "Copying after different lags"
    paper: ClassVar[str] = (
        "Henaff, Szlam, LeCun: Recurrent Orthogonal Networks and Long-Memory Tasks (ICML 2016, "
        "arXiv:1602.06662)"
    )

    kind: Literal["copy_variable_lag"] = "copy_variable_lag"
    lag: int = Field(
        default=100,
        ge=1,
        le=10_000,
        description="T, the longest; low-rank GRUs had 100",
    )
    shortest_lag: int = Field(
        default=1, ge=1, le=10_000, description="from 1 to `lag`; code of the orthogonal RNNs has 2"
    )
    train_samples: int = Field(
        default=10_000,
        ge=1,
        le=10_000_000,
        description="per epoch; low-rank GRUs had 100,000, and 10,000 for tests",
    )

    @model_validator(mode="after")
    def _lags_are_in_order(self) -> Self:
        if self.shortest_lag > self.lag:
            raise ValueError(
                f"shortest_lag {self.shortest_lag} does not fit, allowed is 1 to lag ({self.lag})"
            )
        return self

    def shown_and_answered(self, rows: Symbols) -> tuple[Symbols, Symbols]:
        """See `LaggedCopy`."""
        data, further = copying.drawn(self.seed, rows, EIGHT_SYMBOLS)
        lag = self.shortest_lag + hashed.below(further, self.lag - self.shortest_lag + 1)
        return copying.sequences(
            data, EIGHT_SYMBOLS, steps=self.steps, signal_at=lag + DATA_STEPS - 1
        )
