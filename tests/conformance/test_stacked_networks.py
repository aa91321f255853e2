"""Members of a stack compute what each computes alone: every architecture and parametrization."""

import pytest
import torch
from torch import Tensor

from models.architectures import Architecture
from models.architectures.gru import Gru
from models.architectures.lstm import Lstm
from models.architectures.rnn import Rnn
from models.model import ModelSpec, after_step, penalty
from models.parametrizations import Dense, Family, LowRankDiagonal
from models.spec import Signature
from models.stacked import StackedNetwork
from tests.conformance.model_specs import EVERY, pair_name, pairs, small, spec_of, specs

MEMBERS, BATCH = 3, 5
BOUND = 2e-4
"""Of a difference, as a share of the largest number: single precision summed in another order."""


class Both:
    """A stack, and the same networks each for itself."""

    def __init__(self, *specs: ModelSpec) -> None:
        specs = specs * MEMBERS if len(specs) == 1 else specs
        self.alone = [spec.build(seed=seed) for seed, spec in enumerate(specs)]
        generators = [torch.Generator().manual_seed(50 + seed) for seed in range(MEMBERS)]
        self.drawn = [generator.get_state() for generator in generators]
        states = [one.state_dict() for one in self.alone]
        self.stack = StackedNetwork(specs, states, generators=generators)

    def train(self, *, training: bool) -> None:
        self.stack.train(training=training)
        for one in self.alone:
            one.train(training)

    def answers(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Of the stack, and of each network alone, which are equal."""
        together = self.stack(x)
        apart: list[Tensor] = []
        for member, one in enumerate(self.alone):
            torch.set_rng_state(self.drawn[member])
            apart.append(one(x[member]))
            self.drawn[member] = torch.get_rng_state()
        for member, answer in enumerate(apart):
            _close(together[member], answer)
        return together, apart

    def step(self, together: Tensor, apart: list[Tensor]) -> None:
        """One of gradient descent on squares of the answers and what the weights add."""
        (together.square().sum() + self.stack.penalties().sum()).backward()
        for answer, one in zip(apart, self.alone, strict=True):
            added = penalty(one)
            (answer.square().sum() + (0 if added is None else added)).backward()
        for name, parameter in self.stack.parameters.items():
            own = [dict(one.named_parameters())[name] for one in self.alone]
            for member, alone in enumerate(own):
                gradient = None if parameter.grad is None else parameter.grad[member]
                _descend(parameter[member], gradient)
                _descend(alone, alone.grad)
                alone.grad = None
            parameter.grad = None
        for one in self.alone:
            after_step(one)
        self.stack.after_step()

    def assert_equal(self) -> None:
        for member, one in enumerate(self.alone):
            state = self.stack.state_of(member)
            assert state.keys() == one.state_dict().keys()
            for name, tensor in one.state_dict().items():
                _close(state[name], tensor)


@torch.no_grad()
def _descend(parameter: Tensor, gradient: Tensor | None) -> None:
    """A short step, however long the gradient: what grows would hide behind its own size."""
    if gradient is not None:
        parameter.sub_(0.01 * gradient / gradient.norm().clamp_min(1e-3))


def _close(found: Tensor, wanted: Tensor) -> None:
    largest = float(wanted.detach().abs().max()) if wanted.numel() else 0.0
    bound = BOUND * max(1.0, largest)
    torch.testing.assert_close(found, wanted, rtol=0, atol=bound)


def _inputs(signature: Signature, *, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    shape = MEMBERS, BATCH, signature.sequence_length, signature.input_size
    return torch.randn(shape, generator=generator)


Pair = tuple[type[Architecture], type[Family]]

pytestmark = pytest.mark.sampled


@pytest.fixture(params=pairs(), ids=pair_name)
def pair(request: pytest.FixtureRequest) -> Pair:
    return request.param


def test_steps_of_training_are_those_of_each_member_alone(pair: Pair) -> None:
    for spec in specs(*pair):
        both, x = Both(spec), _inputs(spec.signature)
        both.train(training=True)
        for _ in range(2):
            both.step(*both.answers(x))
        both.assert_equal()
        both.train(training=False)
        both.answers(x)


@pytest.mark.in_full
def test_members_that_stay_go_on_as_if_the_others_had_never_been() -> None:
    spec = spec_of(small(Rnn), LowRankDiagonal)
    both, x = Both(spec), _inputs(spec.signature)
    both.stack.keep([2, 0])
    assert len(both.stack) == 2
    found = both.stack(x[[2, 0]])
    _close(found[0], both.alone[2](x[2]))
    _close(found[1], both.alone[0](x[0]))


@pytest.mark.in_full
def test_members_go_on_from_states_of_their_own() -> None:
    spec = spec_of(small(Lstm, depth=2), Dense, EVERY)
    both, x = Both(spec), _inputs(spec.signature)
    first, state = both.stack.step(x, ())
    second, _ = both.stack.step(x, state)
    for member, one in enumerate(both.alone):
        answer, own = one.step(x[member], ())
        _close(first[member], answer)
        _close(second[member], one.step(x[member], own)[0])


@pytest.mark.in_full
def test_ragged_batches_have_lengths_for_each_member() -> None:
    spec = spec_of(small(Gru), Dense)
    both, x = Both(spec), _inputs(spec.signature)
    lengths = torch.tensor([[1, 2, 3, 4, 5], [5, 5, 1, 1, 1], [2, 2, 2, 2, 2]])
    found = both.stack(x, lengths=lengths)
    for member, one in enumerate(both.alone):
        _close(found[member], one(x[member], lengths=lengths[member]))


def test_members_of_other_counts_ranks_and_radii_are_as_each_alone(pair: Pair) -> None:
    architecture = small(pair[0])
    specs = [spec_of(architecture, pair[1], share=share) for share in (0.9, 0.1, 0.5)]
    both = Both(*specs)
    x = _inputs(specs[0].signature)
    both.train(training=True)
    for _ in range(3):
        both.step(*both.answers(x))
    both.assert_equal()


@pytest.mark.in_full
def test_members_that_differ_in_what_cannot_be_filled_up_are_refused() -> None:
    one, other = spec_of(small(Rnn), Dense), spec_of(small(Gru), Dense)
    generators = [torch.Generator(), torch.Generator()]
    states = [one.build().state_dict(), other.build().state_dict()]
    with pytest.raises(ValueError, match="0 models, 0 states and 0 generators"):
        StackedNetwork([], [], generators=[])
    with pytest.raises(ValueError, match="1 models, 1 states and 2 generators"):
        StackedNetwork([one], states[:1], generators=generators)
    with pytest.raises(ValueError, match="one architecture, signature and number of bits"):
        StackedNetwork([one, other], states, generators=generators)
    with pytest.raises(ValueError, match="of another model"):
        StackedNetwork([one], states[1:], generators=generators[:1])
    thin = [spec_of(small(Rnn), Dense), spec_of(small(Rnn), LowRankDiagonal)]
    with pytest.raises(ValueError, match="the parametrization is dense and low_rank_diagonal"):
        StackedNetwork(thin, [spec.build().state_dict() for spec in thin], generators=generators)
