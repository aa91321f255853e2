"""What the copy tasks share: symbols are shown, and after a signal they are to be repeated."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from models.spec import Signature
from search.tasks.samples import IGNORED
from search.tasks.synthetic import hashed
from search.tasks.synthetic.generated import Make
from search.tasks.task import NOT_NEGATIVE, SHARE, Metric, Range

DATA_STEPS = 10
"""Symbols to be remembered, at most."""

Symbols = NDArray[np.int64]


@dataclass(frozen=True)
class Alphabet:
    """The numbers that symbols have: `count` for data in a row, a blank and a signal to repeat."""

    first: int
    count: int
    blank: int
    signal: int

    @property
    def size(self) -> int:
        """All symbols."""
        return self.count + 2

    @property
    def names(self) -> tuple[str, ...]:
        """All symbols' names, by number."""
        special = {self.blank: "blank", self.signal: "signal"}
        return tuple(special.get(n, str(n - self.first)) for n in range(self.size))


EIGHT_SYMBOLS = Alphabet(first=0, count=8, blank=8, signal=9)
"""Of all copy tasks but the one with the tail."""


def drawn(seed: int, rows: Symbols, alphabet: Alphabet) -> tuple[Symbols, NDArray[np.uint64]]:
    """Draw data `[B, DATA_STEPS]` for each row, and one more word `[B]` for what else it needs."""
    bits = hashed.words(seed, rows, DATA_STEPS + 1)
    return alphabet.first + hashed.below(bits[:, :-1], alphabet.count), bits[:, -1]


def sequences(
    data: Symbols, alphabet: Alphabet, *, steps: int, signal_at: int | Symbols
) -> tuple[Symbols, Symbols]:
    """Lay data out at the first steps, a signal at `signal_at`, and the answer right behind it.

    Args:
        data: `[B, DATA_STEPS]`, blank behind the last symbol.
        alphabet: gives blank and signal.
        steps: of a sequence, at least `signal_at + 1 + DATA_STEPS`.
        signal_at: the step of the signal, one for all or `[B]`; it may overwrite a blank of data.

    Returns:
        What is shown and what is to be answered, `[B, steps]` each, blank elsewhere.
    """
    samples = len(data)
    shown = np.full((samples, steps), alphabet.blank)
    answer = shown.copy()
    sample = np.arange(samples)
    signal_at = np.broadcast_to(signal_at, samples)
    shown[:, :DATA_STEPS] = data
    shown[sample, signal_at] = alphabet.signal
    answer[sample[:, None], signal_at[:, None] + 1 + np.arange(DATA_STEPS)] = data
    return shown, answer


def signature(alphabet: Alphabet, *, steps: int) -> Signature:
    """A one-hot symbol in and the symbols' logits out at every step."""
    return Signature(
        input_size=alphabet.size,
        sequence_length=steps,
        output_size=alphabet.size,
        output_steps="every",
    )


def cross_entropy_metric(baseline: float) -> Metric:
    """Mean cross-entropy, of which the baseline depends on the lengths."""
    return Metric(
        name="cross_entropy", direction="minimize", unit="nats per step", baseline=baseline
    )


def encoded(draw: Callable[[Symbols], tuple[Symbols, Symbols]], alphabet: Alphabet) -> Make:
    """Make samples of symbols `[B, T]` by row: x one-hot `[B, T, size]` float32, y `[B, T]`."""
    codes = np.eye(alphabet.size, dtype=np.float32)

    def make(rows: Tensor) -> tuple[Tensor, Tensor]:
        shown, answer = draw(rows.numpy())
        return torch.as_tensor(codes[shown]), torch.as_tensor(answer)

    return make


class CopyMeter:
    """Mean cross-entropy in nats over all steps of the loss, and accuracy where data is recalled.

    Data is recalled at the steps whose target is neither blank nor ignored.
    """

    def __init__(self, alphabet: Alphabet, *, accuracy: str = "recall_accuracy") -> None:
        self._blank = alphabet.blank
        self._accuracy = accuracy
        self._nats = 0.0
        self._steps = 0
        self._hits = 0
        self._recalled = 0

    def add(self, output: Tensor, target: Tensor) -> None:
        """Count a batch."""
        self._nats += F.cross_entropy(
            output.flatten(0, 1), target.flatten(), ignore_index=IGNORED, reduction="sum"
        ).item()
        counted = target != IGNORED
        recalled = counted & (target != self._blank)
        self._steps += int(counted.sum().item())
        self._recalled += int(recalled.sum().item())
        self._hits += int(((output.argmax(dim=-1) == target) & recalled).sum().item())

    @property
    def ranges(self) -> Mapping[str, Range]:
        """An entropy and a share."""
        return {"cross_entropy": NOT_NEGATIVE, self._accuracy: SHARE}

    def values(self) -> Mapping[str, float]:
        """Cross-entropy, and accuracy by the name it was given."""
        return {
            "cross_entropy": self._nats / self._steps,
            self._accuracy: self._hits / self._recalled,
        }
