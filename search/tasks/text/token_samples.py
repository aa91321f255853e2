"""A text's tokens as samples: one long stream, or sentences that stand by themselves."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from search.tasks.samples import IGNORED, Batch

_STREAM_EVALUATION_ROWS = 20
# Answers are wide, [rows, steps, vocabulary], and sentences are padded to their longest.
SENTENCE_EVALUATION_ROWS = 32
"""Lines of a batch that is only evaluated; of a stream fewer rows are read."""


@dataclass(frozen=True)
class TokenStream:
    """A text cut into contiguous rows, which are read side by side, window by window.

    Each token is a target exactly once, and what is read at its step is the token before it. The
    first rows are one token longer than the others where the rows do not come out even; the others
    have an ignored target in the very last step. The state goes on from window to window, so that
    the order is the text's own in every epoch (Mikolov et al.: Recurrent Neural Network Based
    Language Model, Interspeech 2010; Zaremba, Sutskever, Vinyals, arXiv:1409.2329, section 4.1).
    """

    tokens: Tensor
    """`[N + 1]` int32: what is read before the first target, and the N targets."""
    window: int
    """Steps of a batch; the last one may have fewer."""
    one_hot: int | None = None
    """The vocabulary, if x is to be `[B, T, vocabulary]`; None: x is the tokens, `[B, T]`."""

    @property
    def carries_state(self) -> bool:
        """Rows go on from batch to batch."""
        return True

    def __len__(self) -> int:
        """N."""
        return len(self.tokens) - 1

    def batches(self, size: int, generator: torch.Generator | None) -> Sequence[Tensor]:
        """Windows of `size` rows, or as many as there are tokens.

        For evaluation, without a generator, rows are as few as it takes to fill windows, and at
        most 20: the more rows, the more tokens are read without what came before them.
        """
        most = len(self) if generator is not None else max(1, len(self) // self.window)
        rows = min(size, most, _STREAM_EVALUATION_ROWS if generator is None else most)
        firsts = range(0, -(-len(self) // rows), self.window)
        return torch.tensor([(rows, first) for first in firsts]).unbind()

    def take(self, batch: Tensor) -> Batch:
        """The window that begins at a step of so many rows."""
        rows, first = int(batch[0]), int(batch[1])
        short, longer = divmod(len(self), rows)
        row = torch.arange(rows)
        starts = row * short + row.clamp(max=longer)
        end = min(first + self.window, short + (longer > 0))
        steps = torch.arange(first, end)
        inside = steps < short + (row < longer)[:, None]
        places = (starts[:, None] + steps) * inside
        return _batch(self.tokens, places, inside, one_hot=self.one_hot)

    def to(self, device: torch.device) -> Self:
        """The same tokens on a device."""
        return replace(self, tokens=self.tokens.to(device))


@dataclass(frozen=True)
class Sentences:
    """Lines that are read by themselves, each from the initial state, to its end mark included.

    What is read at the first step is an end mark. Lines of a batch are padded to its longest one;
    targets behind a line's end are ignored.
    """

    tokens: Tensor
    """`[N + 1]` int32: an end mark, and lines that end in one."""
    firsts: Tensor
    """`[lines]` int64, on the CPU: the place of each line's first target, counted from 0."""
    lengths: Tensor
    """`[lines]` int64, on the CPU: how many targets each line has."""
    one_hot: int | None = None
    """As for `TokenStream`."""

    @classmethod
    def of(cls, tokens: Tensor, *, longest: int | None = None, one_hot: int | None = None) -> Self:
        """All lines, except those of more than `longest` tokens, the end mark not counted.

        Args:
            tokens: as the field; the first one shows which number the end mark has.
            longest: None keeps all lines.
            one_hot: as the field.
        """
        after = torch.nonzero(tokens[1:] == tokens[0]).flatten() + 1
        firsts = torch.cat((after.new_zeros(1), after[:-1]))
        lengths = after - firsts
        kept = lengths >= 1 if longest is None else lengths <= longest + 1
        return cls(tokens, firsts[kept], lengths[kept], one_hot)

    @property
    def carries_state(self) -> bool:
        """Lines are independent of each other."""
        return False

    def __len__(self) -> int:
        """Lines."""
        return len(self.firsts)

    def batches(self, size: int, generator: torch.Generator | None) -> Sequence[Tensor]:
        """All lines once: in a fresh permutation, or as they come and at most 32 at a time."""
        count = len(self)
        if generator is None:
            return torch.split(torch.arange(count), min(size, SENTENCE_EVALUATION_ROWS))
        return torch.split(torch.randperm(count, generator=generator), size)

    def take(self, batch: Tensor) -> Batch:
        """The lines of some numbers."""
        lengths = self.lengths[batch]
        steps = torch.arange(int(lengths.max()))
        inside = steps < lengths[:, None]
        places = (self.firsts[batch][:, None] + steps) * inside
        samples = _batch(self.tokens, places, inside, one_hot=self.one_hot)
        return replace(samples, lengths=lengths.to(self.tokens.device))

    def to(self, device: torch.device) -> Self:
        """The same tokens on a device."""
        return replace(self, tokens=self.tokens.to(device))


def _batch(tokens: Tensor, places: Tensor, inside: Tensor, *, one_hot: int | None) -> Batch:
    """Read targets `[B, T]` at places counted from the first target, ignored where not `inside`.

    What is padded reads, like the first step of all, the first token.
    """
    device = tokens.device
    weight = int(inside.sum())
    places, inside = places.to(device), inside.to(device)
    x = tokens[places].long()
    y = tokens[places + 1].long().masked_fill(~inside, IGNORED)
    if one_hot is not None:
        x = torch.zeros(*x.shape, one_hot, device=device).scatter_(2, x[:, :, None], 1)
    return Batch(x, y, weight=weight)
