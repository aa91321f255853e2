"""Validation samples as they are before anything is done to them, to judge a model's files by."""

from dataclasses import dataclass
from typing import Final

import safetensors.torch
import torch
from torch import Tensor

from models.checkpoint import plain_bytes
from models.errors import CheckpointError
from search.tasks.samples import Batch, Samples

SAMPLES_FORMAT: Final = "reflectory.samples.1"

MOST_SAMPLES: Final = 4096
MOST_SAMPLE_BYTES: Final = 4 << 20
"""Of their numbers as they are stored, unless a single sample has more."""


@dataclass(frozen=True)
class RawSamples:
    """Samples as a user's file holds them, with what is right of each.

    A task's `interface` makes what its validation split holds of x.
    """

    x: Tensor
    """`[N, *sample]`: float32 with NaN for what is missing, or tokens, int64."""
    y: Tensor
    """What the interface's answer should be: the numbers of classes `[N, ...]`, int64, with
    `IGNORED` where none is asked for; numbers in their own unit; 0 and 1 of labels, float32."""
    lengths: Tensor | None = None
    """`[N]` int64: steps of each sample, where they differ."""

    def __len__(self) -> int:
        return len(self.x)

    def fitting(self) -> "RawSamples":
        """The first of them, as many as are kept; one at least."""
        of_each = [part[0].numel() * part.itemsize for part in self._tensors().values()]
        return self.between(0, max(1, min(MOST_SAMPLES, MOST_SAMPLE_BYTES // sum(of_each))))

    def between(self, start: int, stop: int) -> "RawSamples":
        """Those of some places."""
        lengths = None if self.lengths is None else self.lengths[start:stop]
        return RawSamples(self.x[start:stop], self.y[start:stop], lengths)

    def to_bytes(self) -> bytes:
        """A safetensors file; equal samples give equal bytes."""
        return plain_bytes(self._tensors(), {"format": SAMPLES_FORMAT})

    @classmethod
    def from_bytes(cls, content: bytes) -> "RawSamples":
        """What `to_bytes` wrote.

        Raises:
            CheckpointError: the content is something else, or damaged.
        """
        try:
            tensors = safetensors.torch.load(content)
            x, y = tensors["x"], tensors["y"]
        except (safetensors.SafetensorError, KeyError) as error:
            raise CheckpointError(f"{len(content)} bytes are no raw samples: {error}") from error
        is_tokens = x.dtype == torch.int32
        return cls(x.to(torch.int64 if is_tokens else torch.float32), y, tensors.get("lengths"))

    def _tensors(self) -> dict[str, Tensor]:
        """As they are stored: whole numbers of 0..255 take a byte each, and tokens four."""
        tensors = {"x": _stored(self.x), "y": self.y}
        return tensors if self.lengths is None else {**tensors, "lengths": self.lengths}


def first_batch(samples: Samples, *, numbers: int) -> Batch:
    """The first samples of a split, of so many numbers each: no more than may be kept."""
    return samples.take(samples.batches(most_rows(numbers), None)[0])


def most_rows(numbers: int) -> int:
    """How many samples of so many numbers may be kept, if each number takes a byte."""
    return max(1, min(MOST_SAMPLES, MOST_SAMPLE_BYTES // numbers))


def _stored(x: Tensor) -> Tensor:
    if not x.is_floating_point():
        return x.to(torch.int32)
    if bool(((x >= 0) & (x <= 255) & (x == x.round())).all()):
        return x.to(torch.uint8)
    return x
