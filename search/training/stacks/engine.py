"""Who computes members: what alone and together have in common."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from models.backends.loops import State
from models.network import Network
from search.tasks import Batch, Samples
from search.training.resume import Tensors
from search.training.stacks.member import Member, Step
from search.training.stacks.member_numbers import Numbers


class Networks(Protocol):
    """The networks of K members, and how they answer what is held out."""

    def for_inference(self) -> AbstractContextManager[object]:
        """Within the context they compute as after training."""
        ...

    def answer(self, samples: Samples, batch: Batch, carried: State) -> tuple[Tensor, State]:
        """What all make of one batch `[K, B, ...]`, and where they end if the state is carried."""
        ...

    def losses(self, outputs: Tensor, y: Tensor) -> list[float]:
        """The task's loss of each."""
        ...


class Engine(Protocol):
    """What computes the steps of some members, and holds their numbers meanwhile."""

    members: list[Member]
    """Whom it computes, in the order of their places."""

    @property
    def networks(self) -> Networks:
        """Theirs."""
        ...

    def begin_epoch(self) -> None:
        """Take learning rates from the members, and carry nothing over where a pass begins.

        Members may be in different epochs. It may be called again at any batch.
        """
        ...

    def step(self, *, watched: bool) -> Sequence[Step]:
        """Train on each member's next batch; several members whose step fails are as before.

        Args:
            watched: whether the gradients' way back is watched.
        """
        ...

    def rounded(self) -> AbstractContextManager[None]:
        """Within the context weights are rounded to the members' bits, if these are few."""
        ...

    def state(self, place: int) -> Tensors:
        """A copy of a member's numbers as they are now."""
        ...

    def margins(self) -> Sequence[float | None]:
        """Each member's spectral margin."""
        ...

    def terms(self) -> Sequence[float | None]:
        """Each member's generalization term."""
        ...

    def numbers(self, place: int) -> Numbers:
        """All that a member takes along; it may be written over by the next step."""
        ...

    def keep(self, places: Sequence[int]) -> None:
        """Go on with these members; the others leave."""
        ...


def first_state(one: Network, ended: State) -> State:
    """The state before the first step of as many sequences as ended in a state."""
    layers = zip(*(part.unbind(0) for part in one.first_states()), strict=True)
    firsts = [part for layer in layers for part in layer]
    return tuple(a.expand_as(b).clone() for a, b in zip(firsts, ended, strict=True))


def settle(device: torch.device) -> None:
    """Wait for the device: what it still computes after a batch would disturb a measurer."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def listed(tensor: Tensor) -> list[Any]:
    """The numbers of a tensor, for which a GPU is waited for."""
    return cast(Any, tensor).tolist()
