"""Several networks of one architecture, computed in the same calls.

`torch.vmap` carries one member's forward pass over the members' axis; our operators take it as
further models or matrices (`models.kernels.members`). So a stack computes whatever a member does.

Members may have radii, margins and penalties of their own, see `Family.reals`, and other counts and
ranks. All are laid out as one that has the largest of each; what a member lacks is filled with
zeros, which change nothing: a reflector of zeros is the identity, as is a rotation by 0, and a
column of rank adds nothing. They have no gradient, and stay zeros.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, cast, final

import torch
from torch import Tensor, nn
from torch.func import functional_call

from models.backends.call import State
from models.linear import StructuredLinear
from models.math.dropout import drawn_by
from models.model import ModelSpec, after_step, penalty
from models.network import Network
from models.parametrizations import AnyFamily, AnyParametrization, PerLayer


@final
class StackedNetwork:
    """K networks whose numbers stand in one tensor for each parameter, `[K, ...]`."""

    def __init__(
        self,
        specs: Sequence[ModelSpec],
        states: Sequence[Mapping[str, Tensor]],
        *,
        generators: Sequence[torch.Generator],
    ) -> None:
        """Copy the members' numbers.

        Args:
            specs: of each member, alike but for counts, ranks and `Family.reals`.
            states: of each member, its `state_dict`.
            generators: of each member, what it draws while it trains.

        Raises:
            ValueError: there is no member, not one of each for all, members differ in something
                else, or a state is of another model.
        """
        counts = len(specs), len(states), len(generators)
        if not specs or len(set(counts)) > 1:
            raise ValueError(
                "a stack has at least one member, and a state and a generator for each; given are "
                f"{counts[0]} models, {counts[1]} states and {counts[2]} generators"
            )
        one = common_spec(specs).build()
        self._caller = _Caller(one)
        plans = [spec.build_on_meta() for spec in specs]
        self._shapes = [_shapes(plan, state) for plan, state in zip(plans, states, strict=True)]
        self._reals = _reals_of(plans)
        wanted = {name: tensor.shape for name, tensor in one.state_dict().items()}
        numbers = {
            name: torch.stack([_filled(state, name, shape) for state in states])
            for name, shape in wanted.items()
        }
        own = dict(one.named_parameters())
        self.parameters = {n: nn.Parameter(numbers[n]) for n in numbers if n in own}
        """By name, `[K, ...]`."""
        self.buffers = {n: numbers[n] for n in numbers if n not in own}
        """What members average while they train, by name, `[K, ...]`."""
        self.generators = [*generators]
        """What members draw with."""
        self._keep_filling()

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

    def penalties(self) -> Tensor:
        """What the structured weights add to each member's loss `[K]`."""
        return self._of_each(_penalty)

    @torch.no_grad()
    def after_step(self) -> None:
        """Bring parameters back to where they belong, after an optimizer's step."""
        self._of_each(_after_step)

    def train(self, *, training: bool = True) -> None:
        """Compute as in training, or as afterwards."""
        self._caller.train(training)

    def state_of(self, member: int) -> dict[str, Tensor]:
        """A member's parameters and buffers, as its own `state_dict` has them."""
        numbers = self._numbers()
        return {
            name: numbers[name][member][_region(shape)].detach()
            for name, shape in self._shapes[member].items()
        }

    def keep(self, members: Sequence[int]) -> None:
        """Go on with some of the members, by their places, in this order; the others leave."""
        places = torch.tensor([*members])
        for name, parameter in self.parameters.items():
            self.parameters[name] = nn.Parameter(parameter.detach()[places.to(parameter.device)])
        self.buffers = {n: one[places.to(one.device)] for n, one in self.buffers.items()}
        self.generators = [self.generators[place] for place in members]
        self._shapes = [self._shapes[place] for place in members]
        self._reals = {where: one[places] for where, one in self._reals.items()}
        self._keep_filling()

    def _keep_filling(self) -> None:
        """Let no gradient reach what members lack."""
        for name, parameter in self.parameters.items():
            shapes = [shapes[name] for shapes in self._shapes]
            if all(shape == parameter.shape[1:] for shape in shapes):
                continue
            is_own = torch.zeros_like(parameter)
            for member, shape in enumerate(shapes):
                is_own[member][_region(shape)] = 1
            parameter.register_hook(is_own.mul)  # pyright: ignore[reportUnknownMemberType] -- untyped

    def _numbers(self) -> dict[str, Tensor]:
        return {**self.parameters, **self.buffers}

    def _of_each(self, function: Callable[..., Any], *arguments: Tensor | None) -> Any:
        def of_one(
            numbers: Mapping[str, Tensor],
            reals: Mapping[tuple[str, str], Tensor],
            *own: Tensor | None,
        ) -> Any:
            self._caller.use_reals(reals)
            return functional_call(self._caller, _below_one(numbers), (function, *own))

        in_dims = 0, 0, *(None if one is None else 0 for one in arguments)
        over_members: Any = torch.vmap(of_one, in_dims=in_dims, randomness="error")
        with drawn_by(self.generators):
            return over_members(self._numbers(), self._reals, *arguments)


class _Caller(nn.Module):
    """Calls functions of a network, for `functional_call` knows modules' forward passes alone."""

    def __init__(self, one: Network) -> None:
        super().__init__()
        self.one = one

    def use_reals(self, reals: Mapping[tuple[str, str], Tensor]) -> None:
        """Compute with these, by the names of a linear map and of its number."""
        by_map: dict[str, dict[str, Tensor]] = {}
        for (path, name), value in reals.items():
            by_map.setdefault(path, {})[name] = value
        for path, values in by_map.items():
            linear = self.one.get_submodule(path)
            assert isinstance(linear, StructuredLinear)
            linear.use_reals(values)

    def forward(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(self.one, *arguments)


def _below_one(numbers: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"one.{name}": tensor for name, tensor in numbers.items()}


def _after_step(one: Network) -> Tensor:
    after_step(one)
    # What is carried over members gives something.
    return torch.zeros(())


def common_spec(specs: Sequence[ModelSpec]) -> ModelSpec:
    """The model that all of these can be laid out as: with the largest of each count and rank.

    Raises:
        ValueError: they differ in something else.
    """
    first, *others = specs
    for other in others:
        if other.model_copy(update={"parametrization": first.parametrization}) != first:
            raise ValueError(
                "members of one stack have one architecture, signature and number of bits; these "
                f"differ: {other.model_dump_json()} and {first.model_dump_json()}"
            )
    parametrization = _common([spec.parametrization for spec in specs])
    return first.model_copy(update={"parametrization": parametrization})


def _common(members: Sequence[AnyParametrization]) -> AnyParametrization:
    layers = [one.layers for one in members if isinstance(one, PerLayer)]
    if len(layers) == len(members) and len({len(one) for one in layers}) == 1:
        return PerLayer(layers=tuple(_common_family(one) for one in zip(*layers, strict=True)))
    families = [one for one in members if not isinstance(one, PerLayer)]
    if layers or len({type(one) for one in families}) > 1:
        _refuse("the parametrization", [one.kind for one in members])
    return _common_family(families)


def _common_family(members: Sequence[AnyFamily]) -> AnyFamily:
    """The member of a family with the largest of each integer."""
    if len({type(one) for one in members}) > 1:
        _refuse("a layer's parametrization", [one.kind for one in members])
    first, counts = members[0], dict[str, int]()
    for name in type(first).model_fields:
        values: list[Any] = [getattr(one, name) for one in members]
        if all(type(value) is int for value in values):
            counts[name] = max(values)
        elif name not in first.reals and any(value != values[0] for value in values):
            _refuse(f"{first.kind}.{name}", values)
    return first.model_copy(update=counts)


def _refuse(what: str, values: Sequence[object]) -> NoReturn:
    words = " and ".join(dict.fromkeys(str(value) for value in values))
    raise ValueError(
        f"members of one stack may differ in counts, ranks and what `Family.reals` names; {what} "
        f"is {words}"
    )


def _penalty(one: Network) -> Tensor:
    found = penalty(one)
    return torch.zeros(()) if found is None else found


def _reals_of(plans: Sequence[nn.Module]) -> dict[tuple[str, str], Tensor]:
    """Each member's reals `[K]` by the names of a linear map and of its number."""
    found: dict[tuple[str, str], list[float]] = {}
    for plan in plans:
        modules = cast(Iterator[tuple[str, nn.Module]], plan.named_modules())
        maps = ((path, one) for path, one in modules if isinstance(one, StructuredLinear))
        for path, linear in maps:
            for name, value in linear.reals().items():
                found.setdefault((path, name), []).append(value)
    return {where: torch.tensor(values) for where, values in found.items()}


def _shapes(plan: nn.Module, state: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    """Those of a member's own numbers."""
    try:
        plan.load_state_dict(state, assign=True)
    except RuntimeError as error:
        raise ValueError(f"a member's state is of another model: {error}") from error
    return {name: tensor.shape for name, tensor in state.items()}


def _filled(state: Mapping[str, Tensor], name: str, shape: torch.Size) -> Tensor:
    """A member's numbers in the shape that all have, zeros behind its own."""
    own = state.get(name)
    if own is None and name.rpartition(".")[2] == "sign":
        # Of a reflector of one number, which is the identity where there is none.
        return torch.ones(shape)
    if own is None:
        raise ValueError(f"members of one stack have the same parameters; one has no {name}")
    filled = own.new_zeros(shape)
    filled[_region(own.shape)] = own
    return filled


def _region(shape: torch.Size) -> tuple[slice, ...]:
    return tuple(slice(size) for size in shape)
