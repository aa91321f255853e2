"""The copy task with data of different lengths."""

import math
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field
from torch import Tensor

from models.spec import Signature
from search.tasks import copying, hashed
from search.tasks.copying import DATA_STEPS, EIGHT_SYMBOLS, CopyMeter, Symbols
from search.tasks.generated import Generated, GeneratedTask
from search.tasks.samples import Splits
from search.tasks.sources import DataSources, DownloadProgress
from search.tasks.task import Metric


class CopyVariableLength(GeneratedTask):
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

    @property
    def metric(self) -> Metric:
        """Cross-entropy."""
        mean_length = (1 + DATA_STEPS) / 2
        return copying.cross_entropy_metric(mean_length * math.log(8) / self._steps)

    def signature(self) -> Signature:
        """Ten symbols in and ten logits out at each of T + 20 steps."""
        return copying.signature(EIGHT_SYMBOLS, steps=self._steps)

    def load(
        self,
        sources: DataSources,  # noqa: ARG002 -- no file is read
        *,
        progress: DownloadProgress | None = None,  # noqa: ARG002 -- nothing is downloaded
    ) -> Splits[Generated]:
        """Describe the splits; their samples are made when they are taken."""
        return self.splits(copying.encoded(self._draw, EIGHT_SYMBOLS))

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Mean cross-entropy over all steps."""
        return copying.cross_entropy(output, target)

    def meter(self) -> CopyMeter:
        """Cross-entropy, and accuracy over the steps that repeat data."""
        return CopyMeter(EIGHT_SYMBOLS)

    @property
    def _steps(self) -> int:
        return self.lag + 2 * DATA_STEPS

    def _draw(self, rows: Symbols) -> tuple[Symbols, Symbols]:
        data, further = copying.drawn(self.seed, rows, EIGHT_SYMBOLS)
        length = 1 + hashed.below(further, DATA_STEPS)
        data[np.arange(DATA_STEPS) >= length[:, None]] = EIGHT_SYMBOLS.blank
        return copying.sequences(
            data, EIGHT_SYMBOLS, steps=self._steps, signal_at=length + self.lag - 1
        )
