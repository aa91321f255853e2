"""Pieces of a text, by the numbers of its tokens, as samples that each begin anew."""

import torch
from torch import Tensor

from search.tasks.raw_samples import MOST_SAMPLE_BYTES, MOST_SAMPLES, RawSamples
from search.tasks.text.token_samples import Sentences

_TOKEN_BYTES = 12
"""What is read takes four bytes, and what is right eight."""


def windows_of_tokens(tokens: Tensor, window: int) -> RawSamples:
    """The first windows of a text, each with the token that follows every one of its own.

    Args:
        tokens: `[N + 1]`, see `TokenStream`.
        window: tokens of each; all of a shorter text are one.
    """
    window = min(window, len(tokens) - 1)
    rows = min(MOST_SAMPLES, (len(tokens) - 1) // window)
    whole = tokens[: rows * window + 1].to(torch.int64)
    return RawSamples(whole[:-1].view(rows, window), whole[1:].view(rows, window)).fitting()


def lines_of_tokens(lines: Sentences) -> RawSamples:
    """The first lines of a text, padded to the longest of them; nothing is asked behind their ends.

    Args:
        lines: with x as tokens.
    """
    longest = lines.lengths[:MOST_SAMPLES].cummax(0).values
    fits = longest * torch.arange(1, len(longest) + 1) * _TOKEN_BYTES <= MOST_SAMPLE_BYTES
    batch = lines.take(torch.arange(max(1, int(fits.sum()))))
    return RawSamples(batch.x, batch.y).fitting()
