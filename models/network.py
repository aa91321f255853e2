"""What every architecture builds: a network that can be watched while gradients pass through it."""

import contextlib
from collections.abc import Callable, Generator
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from models.backends.call import State
from models.errors import InputError
from models.kernels.choice import Backend


class GradientProbe:
    """Reads `|dL/dh|` where the gradient enters a network and where it has passed through it.

    In a recurrent network these are the last layer's state after the last step and the first
    layer's state before the first step, as the papers plot them; in a feed-forward network what
    the readout reads and what the first hidden layer reads. A ratio far below 1 is a vanishing
    gradient, far above 1 an exploding one.
    """

    def __init__(self) -> None:
        self._norms: dict[str, Tensor] = {}

    @property
    def first(self) -> float | None:
        """`|dL/dh|` before the first step or layer; None before a backward pass."""
        return self._norm("first")

    @property
    def last(self) -> float | None:
        """`|dL/dh|` after the last step or layer; None before a backward pass."""
        return self._norm("last")

    def watch_first(self, state: Tensor) -> Tensor:
        """Watch a state `[B, n]`; returns the state to use from here on."""
        return self._watch("first", state)

    def watch_last(self, state: Tensor) -> Tensor:
        """Watch a state `[B, n]`; returns the state to use from here on."""
        return self._watch("last", state)

    def _watch(self, end: str, state: Tensor) -> Tensor:
        if not state.requires_grad:
            state = state.detach().requires_grad_()
        state.register_hook(self._reader(end))  # pyright: ignore[reportUnknownMemberType] -- untyped
        return state

    def _reader(self, end: str) -> Callable[[Tensor], None]:
        def read(gradient: Tensor) -> None:
            # A batch's loss is the mean of its samples' losses: what reaches one sample's state is
            # 1 / B of that sample's own gradient.
            self._norms[end] = gradient.detach().double().square().sum(-1).sqrt().sum(-1)

        return read

    def _norm(self, end: str) -> float | None:
        return float(self._norms[end]) if end in self._norms else None


class StackedProbe(GradientProbe):
    """The same for K networks that are computed in one call, see `models.stacked`."""

    def __init__(self) -> None:
        super().__init__()
        self.leaves: list[Tensor] = []
        """Watched states that no parameter leads to: their gradients are to be asked for, too."""

    def norms(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """`|dL/dh|` of each member `[K]` at the first and the last state; NaN where unknown."""
        unknown = torch.full_like(like, torch.nan, dtype=torch.float64)
        return self._norms.get("first", unknown), self._norms.get("last", unknown)

    def _watch(self, end: str, state: Tensor) -> Tensor:
        return cast(Any, _Watched).apply(state, self._attach, end)

    def _attach(self, end: str, states: Tensor) -> Tensor:
        watched = super()._watch(end, states)
        if watched.is_leaf:
            self.leaves.append(watched)
        return watched


class _Watched(torch.autograd.Function):
    """The identity; where torch carries it over members, the states of all are there to watch."""

    @staticmethod
    def forward(state: Tensor, _attach: object, _end: str) -> Tensor:
        return state.view_as(state)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:  # noqa: ARG004 -- torch passes it
        return gradients[0], None, None

    @staticmethod
    def vmap(  # pyright: ignore[reportIncompatibleMethodOverride] -- torch's has no types
        info: Any,
        in_dims: tuple[int | None, ...],
        state: Tensor,
        attach: Callable[[str, Tensor], Tensor],
        end: str,
    ) -> tuple[Tensor, int]:
        axis = in_dims[0]
        shape = info.batch_size, *state.shape
        states = state.expand(shape) if axis is None else state.movedim(axis, 0)
        return attach(end, states), 0


class Network(nn.Module):
    """A model of any architecture."""

    probe: GradientProbe | None = None

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:  # noqa: ARG002
        """Go on from the state in which an earlier call ended.

        Args:
            x: the next steps of each sequence, as `forward` takes them.
            state: what the earlier call gave; empty for the beginning of the sequences.

        Returns:
            What `forward` gives, and the state after the last step: one `[B, n]` for each part of
            each layer's state.

        Raises:
            InputError: x or the state has another shape or type, or the network has no state.
        """
        raise InputError(f"{type(self).__name__} reads a sequence as a whole and has no state")

    def first_states(self) -> tuple[Tensor, ...]:
        """The state before the first step, `[layers, n]` for each of its parts; none: no state."""
        return ()

    def backends(self, *, batch_size: int = 1) -> tuple[Backend, ...]:  # noqa: ARG002 -- any size
        """What would run the network now, each backend named once; torch's operations if not."""
        return ("torch",)

    def watch_first(self, state: Tensor) -> Tensor:
        """Show the state `[B, n]` before the first step or layer to the probe, if there is one."""
        return state if self.probe is None else self.probe.watch_first(state)

    def watch_last(self, state: Tensor) -> Tensor:
        """Show the state `[B, n]` after the last step or layer to the probe, if there is one."""
        return state if self.probe is None else self.probe.watch_last(state)


@contextlib.contextmanager
def observed(network: Network) -> Generator[GradientProbe]:
    """Watch the gradients of the forward passes made within the context."""
    with observed_by(network, GradientProbe()) as probe:
        yield probe


P = TypeVar("P", bound=GradientProbe)


@contextlib.contextmanager
def observed_by(network: Network, probe: P) -> Generator[P]:
    """The same with a probe that is given."""
    network.probe = probe
    try:
        yield probe
    finally:
        network.probe = None
