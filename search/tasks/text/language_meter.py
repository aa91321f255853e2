"""How well the next token is predicted: perplexity, and bits per token."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from search.tasks.samples import IGNORED
from search.tasks.task import NOT_NEGATIVE, Range

_PERPLEXITY = Range(1.0)

# The numbers of a copy of a batch's outputs: 64 MiB of float32.
_MOST_AT_ONCE = 2**24


class LanguageMeter:
    """The mean negative log-likelihood of the targets [B, T] under logits [B, T, vocabulary].

    Every token counts the same, in whichever batch it is. `perplexity` is its exponential, and
    `bits` that mean in bits. `perplexity_by_sentence` is the exponential of the mean over sentences
    of each one's mean, in which the tokens of short sentences count more. Sums are float64.

    Args:
        bits: the name under which the bits per token are given.
        by_sentence: whether a row of a batch is a sentence.
    """

    def __init__(self, *, bits: str, by_sentence: bool) -> None:
        self._bits, self._by_sentence = bits, by_sentence
        self._sum = 0.0
        self._tokens = 0
        self._sum_of_means = 0.0
        self._sentences = 0

    def add(self, output: Tensor, target: Tensor) -> None:
        """Count a batch; its ignored targets do not count."""
        nats = _nats(output, target)
        tokens = (target != IGNORED).sum(dim=1)
        sums = nats.sum(dim=1)
        self._sum += sums.sum().item()
        self._tokens += int(tokens.sum().item())
        if self._by_sentence:
            self._sum_of_means += (sums / tokens).sum().item()
            self._sentences += len(target)

    @property
    def ranges(self) -> Mapping[str, Range]:
        """The exponential of what is not negative is 1 at least."""
        return {
            "perplexity": _PERPLEXITY,
            self._bits: NOT_NEGATIVE,
            "perplexity_by_sentence": _PERPLEXITY,
        }

    def values(self) -> Mapping[str, float]:
        """Perplexity, bits per token, and perplexity by sentence where rows are sentences."""
        mean = self._sum / self._tokens
        values = {"perplexity": _exponential(mean), self._bits: mean / math.log(2)}
        if self._by_sentence:
            values["perplexity_by_sentence"] = _exponential(self._sum_of_means / self._sentences)
        return values


def _nats(output: Tensor, target: Tensor) -> Tensor:
    """Negative log-likelihoods [B, T] in float64; 0 where the target is ignored."""
    logits, targets = output.flatten(0, 1), target.flatten()
    rows = max(1, _MOST_AT_ONCE // output.shape[-1])
    pairs = zip(torch.split(logits, rows), torch.split(targets, rows), strict=True)
    parts = [
        F.cross_entropy(some, theirs, ignore_index=IGNORED, reduction="none").double()
        for some, theirs in pairs
    ]
    return torch.cat(parts).view_as(target)


def _exponential(nats: float) -> float:
    try:
        return math.exp(nats)
    except OverflowError:
        return math.inf
