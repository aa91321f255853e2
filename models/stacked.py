"""Several networks of one architecture, computed in the same calls.

`torch.vmap` carries one member's forward pass over the members' axis; our operators take it as
further models or matrices (`models.kernels.members`). So a stack computes whatever a member does.

Members may have radii, margins and penalties of their own, see `Family.reals`, and other counts and
ranks. All are laid out as one that has the largest of each; what a member lacks is filled with
zeros, which change nothing: a reflector of zeros is the identity, as is a rotation by 0, and a
column of rank adds nothing. They have no gradient, and stay zeros.
"""

import hashlib
import json
import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, Self, cast, final

import torch
from torch import Tensor, nn

from models.backends.call import State
from models.generalization import generalization_term
from models.hooks import Projected
from models.linear import StructuredLinear
from models.math.dropout import drawn_by
from models.model import ModelSpec, after_step, parameter_groups, penalty, spectral_distance
from models.network import Network, StackedProbe, observed_by
from models.parametrizations import AnyFamily, AnyParametrization, PerLayer
from models.quantization import Bits, Scheme, in_their_place, rounded_names


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
            specs: of each member, alike but for counts, ranks and `Family.reals`, see
                `common_spec`.
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
        self._one = one
        plans = [spec.build_on_meta() for spec in specs]
        self._shapes = [_shapes(plan, state) for plan, state in zip(plans, states, strict=True)]
        self._reals = _reals_of(plans)
        self._is_projected = any(isinstance(part, Projected) for part in one.modules())
        self.has_penalties = any(penalty(plan) is not None for plan in plans)
        """Whether the structured weights of any member add to its loss."""
        self.learning_rate_scales = _scales_of(plans)
        """Of each parameter whose learning rate is not the plain one in each member, `[K]`."""
        wanted = {name: tensor.shape for name, tensor in one.state_dict().items()}
        unknown = sorted({name for shapes in self._shapes for name in shapes} - wanted.keys())
        if unknown:
            raise ValueError(
                f"members of one stack have the same parameters; some have none of {unknown}"
            )
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
        self._places = [_place(one, name) for name in self._numbers()]
        self._keep_filling()

    def __len__(self) -> int:
        return len(next(iter(self.parameters.values())))

    def to(self, device: torch.device | str) -> Self:
        """Bring all numbers to a device, in place; generators are the caller's to choose."""
        self._one.to(device)
        self.parameters = {
            name: nn.Parameter(parameter.detach().to(device))
            for name, parameter in self.parameters.items()
        }
        buffers: Mapping[str, Tensor] = self.buffers
        reals: Mapping[tuple[str, str], Tensor] = self._reals
        self.buffers = {name: one.to(device) for name, one in buffers.items()}
        self._reals = {where: one.to(device) for where, one in reals.items()}
        self._keep_filling()
        return self

    def __call__(self, x: Tensor, *, lengths: Tensor | None = None, shared: bool = False) -> Tensor:
        """What each member makes of its own batch `[K, B, ...]`, of `lengths` `[K, B]`.

        With `shared` all read one batch `[B, ...]`.
        """

        def answer(one: Network, x: Tensor, lengths: Tensor | None) -> Tensor:
            return one(x, lengths=lengths)

        return self.of_each(answer, x, lengths, shared=2 if shared else 0)

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """Go on from the states in which an earlier call ended, see `Network.step`."""

        def answer(one: Network, x: Tensor, *state: Tensor) -> tuple[Tensor, State]:
            return one.step(x, state)

        return self.of_each(answer, x, *state)

    def penalties(self) -> Tensor:
        """What the structured weights add to each member's loss `[K]`."""
        return self.of_each(penalty_of)

    @torch.no_grad()
    def after_step(self) -> None:
        """Bring parameters back to where they belong, after an optimizer's step."""
        if self._is_projected:
            self.of_each(_after_step)

    @torch.no_grad()
    def spectral_margins(self) -> list[float | None]:
        """Each member's `models.model.spectral_margin`."""
        largest = cast(list[float], self.of_each(_spectral_distance).tolist())
        return [None if value < 0 else value for value in largest]

    @torch.no_grad()
    def generalization_terms(self, *, steps: int) -> list[float | None]:
        """Each member's `models.generalization.generalization_term`."""

        def of_one(one: Network) -> Tensor:
            found = generalization_term(one, steps=steps)
            return torch.tensor(math.nan, dtype=torch.float64) if found is None else found

        terms = cast(list[float], self.of_each(of_one).tolist())
        return [term if math.isfinite(term) else None for term in terms]

    @contextmanager
    def observed(self) -> Generator[StackedProbe]:
        """Watch the gradients of the forward passes made within the context."""
        with observed_by(self._one, StackedProbe()) as probe:
            yield probe

    @contextmanager
    def rounded(
        self, bits: Bits | None, *, for_a_step: bool = False, who: Sequence[bool] | None = None
    ) -> Generator[None]:
        """Within the context parameters are rounded; then they are again what they were before.

        Members then have equal counts and ranks: rows of matrices share scales.

        Args:
            bits: None rounds nothing.
            for_a_step: as `models.quantization.rounded_for_a_step`, else as `rounded_weights`.
            who: which members' are; None: all.
        """
        schemes = {} if bits is None else rounded_names(self._one)
        chosen = None if who is None else torch.tensor([*who])
        replaced: list[tuple[Tensor, Callable[[Tensor], Tensor]]] = []
        for name, scheme in schemes.items():
            assert bits is not None
            replaced.append(
                (
                    self.parameters[name],
                    _rounding(scheme, bits, for_a_step=for_a_step, who=chosen),
                )
            )
        with in_their_place(replaced):
            yield

    def train(self, *, training: bool = True) -> None:
        """Compute as in training, or as afterwards."""
        self._one.train(training)

    def state_of(self, member: int) -> dict[str, Tensor]:
        """A member's parameters and buffers, as its own `state_dict` has them."""
        numbers = self._numbers()
        return {
            name: numbers[name][member][_region(shape)].detach()
            for name, shape in self._shapes[member].items()
        }

    def own_part(self, member: int, name: str, numbers: Tensor) -> Tensor:
        """What belongs to a member of numbers `[K, ...]` that a parameter's own stand beside."""
        return numbers[member][_region(self._shapes[member][name])]

    def has(self, member: int, name: str) -> bool:
        """Whether a member itself has a parameter that the stack has."""
        return name in self._shapes[member]

    def laid_out(self, name: str, numbers: Sequence[Tensor | None]) -> Tensor:
        """Numbers that stand beside each member's own parameter, `[K, ...]`; zeros for None."""
        parameter = self.parameters[name]
        filled = torch.zeros_like(parameter, requires_grad=False)
        for member, own in enumerate(numbers):
            if own is not None:
                filled[member][_region(own.shape)] = own.to(filled.device)
        return filled

    def keep(self, members: Sequence[int]) -> None:
        """Go on with some of the members, by their places, in this order; the others leave."""
        places = torch.tensor([*members])
        for name, parameter in self.parameters.items():
            self.parameters[name] = nn.Parameter(parameter.detach()[places.to(parameter.device)])
        self.buffers = {n: one[places.to(one.device)] for n, one in self.buffers.items()}
        self.generators = [self.generators[place] for place in members]
        self._shapes = [self._shapes[place] for place in members]
        self._reals = {where: one[places.to(one.device)] for where, one in self._reals.items()}
        self.learning_rate_scales = {
            name: [scales[place] for place in members]
            for name, scales in self.learning_rate_scales.items()
        }
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

    def of_each(
        self, function: Callable[..., Any], *arguments: Tensor | None, shared: int = 0
    ) -> Any:
        """What a function of each member's network and arguments gives, over all members.

        Args:
            function: of a network and tensors, to tensors; torch carries it over the members.
            arguments: `[K, ...]`.
            shared: so many of the arguments, the first ones, are the same for all members, `[...]`.
        """
        named = self._numbers()
        count = len(named), len(self._reals)

        def of_one(*tensors: Any) -> Any:
            numbers, reals, own = (
                tensors[: count[0]],
                tensors[count[0] : sum(count)],
                tensors[sum(count) :],
            )
            self._use_reals(dict(zip(self._reals, reals, strict=True)))
            with self._using(numbers):
                return function(self._one, *own)

        over = [None] * min(shared, len(arguments)) + [0] * (len(arguments) - shared)
        axes = [None if one is None else axis for one, axis in zip(arguments, over, strict=True)]
        # Flat arguments: torch looks at nested ones leaf by leaf in Python, each time.
        over_members: Any = torch.vmap(
            of_one, in_dims=(*[0] * sum(count), *axes), randomness="error"
        )
        with drawn_by(self.generators):
            return over_members(*named.values(), *self._reals.values(), *arguments)

    @contextmanager
    def _using(self, numbers: Sequence[Tensor]) -> Generator[None]:
        """Within the context the network computes with these, in the order of `_numbers`.

        As `torch.func.functional_call`, which takes a third of a small network's forward pass.
        """
        own = [places[name] for places, name in self._places]
        try:
            for (places, name), tensor in zip(self._places, numbers, strict=True):
                places[name] = tensor
            yield
        finally:
            for (places, name), tensor in zip(self._places, own, strict=True):
                places[name] = tensor

    def _use_reals(self, reals: Mapping[tuple[str, str], Tensor]) -> None:
        """Compute with these, by the names of a linear map and of its number."""
        by_map: dict[str, dict[str, Tensor]] = {}
        for (path, name), value in reals.items():
            by_map.setdefault(path, {})[name] = value
        for path, values in by_map.items():
            linear = self._one.get_submodule(path)
            assert isinstance(linear, StructuredLinear)
            linear.use_reals(values)


def _after_step(one: Network) -> Tensor:
    after_step(one)
    # What is carried over members gives something.
    return torch.zeros(())


def stack_key(spec: ModelSpec) -> str:
    """A digest (hex) that models share of which `common_spec` makes one; nothing is built.

    Numbers of few bits are rounded in rows, for which counts and ranks must be equal, too; and so
    they must be where an architecture says that they shape more than parameters.
    """
    counts = spec.rounded_to is not None or spec.architecture.counts_shape_more
    document = {
        **spec.model_dump(mode="json", exclude={"parametrization"}),
        "parametrization": _key_of(spec.parametrization, counts=counts),
    }
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _key_of(parametrization: AnyParametrization, *, counts: bool) -> Any:
    if isinstance(parametrization, PerLayer):
        return [_key_of(one, counts=counts) for one in parametrization.layers]
    reals, optional = type(parametrization).reals, sorted(parametrization.optional)
    fields = {
        name: "count" if type(value) is int and not counts else value
        for name, value in parametrization.model_dump(mode="json").items()
        if name not in reals
    }
    return {**fields, "optional": optional} if optional else fields


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
    parametrization = _common(
        [spec.parametrization for spec in specs], counts=first.architecture.counts_shape_more
    )
    return first.model_copy(update={"parametrization": parametrization})


def _common(members: Sequence[AnyParametrization], *, counts: bool) -> AnyParametrization:
    """What all can be laid out as; with `counts` they have equal ones."""
    layers = [one.layers for one in members if isinstance(one, PerLayer)]
    if len(layers) == len(members) and len({len(one) for one in layers}) == 1:
        each = zip(*layers, strict=True)
        return PerLayer(layers=tuple(_common_family(one, counts=counts) for one in each))
    families = [one for one in members if not isinstance(one, PerLayer)]
    if layers or len({type(one) for one in families}) > 1:
        _refuse("the parametrization", [one.kind for one in members])
    return _common_family(families, counts=counts)


def _common_family(members: Sequence[AnyFamily], *, counts: bool) -> AnyFamily:
    """The member of a family with the largest of each integer."""
    if len({type(one) for one in members}) > 1:
        _refuse("a layer's parametrization", [one.kind for one in members])
    if len({one.optional for one in members}) > 1:
        _refuse(f"{members[0].kind}.optional", [sorted(one.optional) for one in members])
    first, largest = members[0], dict[str, int]()
    for name in type(first).model_fields:
        values: list[Any] = [getattr(one, name) for one in members]
        if not counts and all(type(value) is int for value in values):
            largest[name] = max(values)
        elif name not in first.reals and any(value != values[0] for value in values):
            _refuse(f"{first.kind}.{name}", values)
    return first.model_copy(update=largest)


def _refuse(what: str, values: Sequence[object]) -> NoReturn:
    words = " and ".join(dict.fromkeys(str(value) for value in values))
    raise ValueError(
        "members of one stack may differ in counts and ranks that shape parameters alone, and in "
        f"what `Family.reals` names; {what} is {words}"
    )


def penalty_of(one: Network) -> Tensor:
    """What a network's structured weights add to its loss, for `StackedNetwork.of_each`."""
    found = penalty(one)
    return torch.zeros(()) if found is None else found


def _spectral_distance(one: Network) -> Tensor:
    found = spectral_distance(one)
    return torch.tensor(-1.0) if found is None else found


def _rounding(
    scheme: Scheme, bits: Bits, *, for_a_step: bool, who: Tensor | None
) -> Callable[[Tensor], Tensor]:
    def of_one(parameter: Tensor) -> Tensor:
        if for_a_step:
            return scheme.for_a_step(parameter, bits)
        return scheme.encode(parameter, bits).values()

    def of_all(parameter: Tensor) -> Tensor:
        rounded: Tensor = torch.vmap(of_one)(parameter)
        # No integer is NaN: what diverged would look as if it had not.
        shape = len(parameter), *[1] * (parameter.dim() - 1)
        sound = torch.isfinite(parameter).flatten(1).all(1).view(shape)
        rounded = torch.where(sound, rounded, torch.nan)
        return (
            rounded
            if who is None
            else torch.where(who.to(sound.device).view(shape), rounded, parameter)
        )

    return of_all


def _scales_of(plans: Sequence[nn.Module]) -> dict[str, list[float]]:
    """Each member's factors on the learning rates of parameters, of those that have any."""
    found: dict[str, list[float]] = {}
    for place, plan in enumerate(plans):
        names = {parameter: name for name, parameter in plan.named_parameters()}
        for group in parameter_groups(plan, 1.0):
            for parameter in group["params"]:
                scales = found.setdefault(names[parameter], [1.0] * len(plans))
                scales[place] = group["lr"]
    return {name: scales for name, scales in found.items() if any(one != 1 for one in scales)}


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


def _place(one: nn.Module, name: str) -> tuple[dict[str, Any], str]:
    """Where a module keeps a parameter or buffer, and under which name."""
    path, _, own = name.rpartition(".")
    kept: Any = vars(one.get_submodule(path))
    parameters, buffers = kept["_parameters"], kept["_buffers"]
    return parameters if own in parameters else buffers, own


def _region(shape: torch.Size) -> tuple[slice, ...]:
    return tuple(slice(size) for size in shape)
