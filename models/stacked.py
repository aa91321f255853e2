"""Several networks of one shape, computed in the same calls.

`torch.vmap` carries one member's forward pass over the members' axis; our operators take it as
further models or matrices (`models.kernels.members`). So a stack computes whatever a member does.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, final

import torch
from torch import Tensor, nn
from torch.func import functional_call

from models.backends.call import State
from models.math.dropout import drawn_by
from models.model import ModelSpec, after_step, penalty
from models.network import Network

T = TypeVar("T")


@final
class StackedNetwork:
    """K networks whose numbers stand in one tensor for each parameter, `[K, ...]`."""

    def __init__(
        self,
        spec: ModelSpec,
        states: Sequence[Mapping[str, Tensor]],
        *,
        generators: Sequence[torch.Generator],
    ) -> None:
        """Copy the members' numbers.

        Args:
            spec: what all members are built from.
            states: of each member, its `state_dict`.
            generators: of each member, what it draws while it trains.

        Raises:
            ValueError: there is no member, not one generator for each, or a state is of another
                model.
        """
        if not states or len(generators) != len(states):
            raise ValueError(
                f"a stack has at least one member, and a generator for each; given are "
                f"{len(states)} states and {len(generators)} generators"
            )
        one = spec.build()
        for state in states:
            try:
                one.load_state_dict(state)
            except RuntimeError as error:
                raise ValueError(f"a member's state is of another model: {error}") from error
        self._caller = _Caller(one)
        own = dict(one.named_parameters())
        numbers = {name: torch.stack([one[name] for one in states]) for name in states[0]}
        self.parameters = {n: nn.Parameter(numbers[n]) for n in numbers if n in own}
        """By name, `[K, ...]`."""
        self.buffers = {n: numbers[n] for n in numbers if n not in own}
        """What members average while they train, by name, `[K, ...]`."""
        self.generators = [*generators]
        """What members draw with."""

    def __len__(self) -> int:
        return len(next(iter(self.parameters.values())))

    def __call__(self, x: Tensor, *, lengths: Tensor | None = None) -> Tensor:
        """What each member makes of its own batch `[K, B, ...]`, of `lengths` `[K, B]`."""

        def answer(one: Network, x: Tensor, lengths: Tensor | None) -> Tensor:
            return one(x, lengths=lengths)

        return self._of_each(answer, x, lengths)

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """Go on from the states in which an earlier call ended, see `Network.step`."""

        def answer(one: Network, x: Tensor, *state: Tensor) -> tuple[Tensor, State]:
            return one.step(x, state)

        return self._of_each(answer, x, *state)

    def penalties(self) -> Tensor | None:
        """What the structured weights add to each member's loss `[K]`; None where none asks."""
        if penalty(self._caller.one) is None:
            return None
        return self._of_each(penalty)

    @torch.no_grad()
    def after_step(self) -> None:
        """Bring parameters back to where they belong, after an optimizer's step."""
        self._of_each(_after_step)

    def train(self, *, training: bool = True) -> None:
        """Compute as in training, or as afterwards."""
        self._caller.train(training)

    def state_of(self, member: int) -> dict[str, Tensor]:
        """A member's parameters and buffers, as its own `state_dict` has them."""
        return {name: one[member].detach() for name, one in self._numbers().items()}

    def of_member(self, member: int, function: Callable[[Network], T]) -> T:
        """What a function says of a network with one member's numbers."""
        return functional_call(self._caller, _below_one(self.state_of(member)), (function,))

    def leave(self, staying: Sequence[int]) -> None:
        """Go on with some of the members, in this order."""
        places = torch.tensor([*staying])
        for name, parameter in self.parameters.items():
            self.parameters[name] = nn.Parameter(parameter.detach()[places.to(parameter.device)])
        self.buffers = {n: one[places.to(one.device)] for n, one in self.buffers.items()}
        self.generators = [self.generators[place] for place in staying]

    def _numbers(self) -> dict[str, Tensor]:
        return {**self.parameters, **self.buffers}

    def _of_each(self, function: Callable[..., Any], *arguments: Tensor | None) -> Any:
        def of_one(numbers: Mapping[str, Tensor], *own: Tensor | None) -> Any:
            return functional_call(self._caller, _below_one(numbers), (function, *own))

        in_dims = 0, *(None if one is None else 0 for one in arguments)
        over_members: Any = torch.vmap(of_one, in_dims=in_dims, randomness="error")
        with drawn_by(self.generators):
            return over_members(self._numbers(), *arguments)


class _Caller(nn.Module):
    """Calls functions of a network, for `functional_call` knows modules' forward passes alone."""

    def __init__(self, one: Network) -> None:
        super().__init__()
        self.one = one

    def forward(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(self.one, *arguments)


def _below_one(numbers: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"one.{name}": tensor for name, tensor in numbers.items()}


def _after_step(one: Network) -> Tensor:
    after_step(one)
    # What is carried over members gives something.
    return torch.zeros(())
