"""Which batches an epoch has: a whole pass over the samples, or so many updates of several."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from search.tasks import Samples


@dataclass(frozen=True)
class EpochBatches:
    """The batches of an epoch, and where the next one goes on."""

    batches: Sequence[Tensor]
    starts: frozenset[int]
    """Places in the epoch at which a pass over the samples begins."""
    done: int
    """Batches of the pass underway at the epoch's end that are done by then."""


def draw_epoch(
    samples: Samples, size: int, order: torch.Generator, *, updates: int | None, done: int
) -> EpochBatches:
    """Draw an epoch's batches; the generator is then where the next epoch goes on.

    Args:
        samples: what is trained on.
        size: samples of a batch.
        order: at the beginning of the pass underway, whose order it draws.
        updates: batches of an epoch, which goes on in the next pass where one ends; None: a pass.
        done: batches of the pass underway that earlier epochs had.
    """
    if updates is None:
        return EpochBatches(samples.batches(size, order), frozenset({0}), 0)
    drawn: list[Tensor] = []
    starts: list[int] = []
    end, state = done + updates, order.get_state()
    while len(drawn) < end:
        state = order.get_state()
        starts.append(len(drawn))
        drawn += samples.batches(size, order)
    left = len(drawn) - end
    if left:
        # The pass that breaks off is drawn again from where it began.
        order.set_state(state)
    return EpochBatches(
        drawn[done:end],
        frozenset(start - done for start in starts if start >= done),
        end - starts[-1] if left else 0,
    )
