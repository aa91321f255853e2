"""Fused networks: the same answers, from less, and no way back to training."""

import copy
import gc
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from models.architectures import AnyArchitecture, Gru, Highway, Lstm, Mlp, Resnet, Rnn, Urnn
from models.errors import InputError, ModelError
from models.forms import DenseForm, Form, LowRankForm
from models.fused import FrozenLinear, FusedNetwork, fuse
from models.linear import StructuredLinear, cache_forms
from models.model import ModelSpec
from models.network import Network, observed
from models.parametrizations import (
    AnyParametrization,
    Dense,
    Householder,
    HouseholderSvd,
    LowRank,
    LowRankDiagonal,
    PackedRotations,
    UnitaryFft,
)
from models.spec import Signature

SIGNATURE = Signature(input_size=3, sequence_length=5, output_size=4)
EVERY = Signature(input_size=3, sequence_length=5, output_size=4, output_steps="every")

MODELS: dict[str, tuple[AnyArchitecture, AnyParametrization]] = {
    "rnn dense": (Rnn(hidden_size=12), Dense()),
    "rnn householder, factored": (Rnn(hidden_size=96, layers=2), Householder(m=4)),
    "rnn abs": (Rnn(hidden_size=12, activation="abs"), HouseholderSvd(m1=2, m2=3)),
    "gru low rank, folded": (Gru(hidden_size=12, reset="before"), LowRankDiagonal(d=2)),
    "gru with candidate bias": (
        Gru(hidden_size=12, reset="after", candidate_bias=True),
        LowRank(d=2),
    ),
    "gru tied low rank": (Gru(hidden_size=96), LowRankDiagonal(d=3, tied=True)),
    "gru structured inputs": (
        Gru(hidden_size=12, structured_inputs="all", layers=2),
        LowRank(d=2),
    ),
    "gru normalised rows": (
        Gru(hidden_size=96, input_weight_norm=True),
        LowRank(d=2, weight_norm=True),
    ),
    "lstm with dropout": (
        Lstm(hidden_size=12, recurrent_dropout=0.3, input_dropout=0.2, readout_dropout=0.1),
        PackedRotations(count=2),
    ),
    "lstm with peephole": (Lstm(hidden_size=12, peephole=True), LowRank(d=2)),
    "urnn": (Urnn(hidden_size=6), UnitaryFft()),
    "mlp, folded": (Mlp(hidden_size=12, layers=3, dropout=0.2), LowRank(d=2)),
    "mlp, factored": (Mlp(hidden_size=96, layers=2), HouseholderSvd(m1=2, m2=2)),
    "resnet": (Resnet(hidden_size=12), Householder(m=3)),
    "highway": (Highway(hidden_size=12), LowRankDiagonal(d=2)),
    "highway, normalised": (Highway(hidden_size=12, stack="batch_normalised"), LowRank(d=2)),
}


def network_of(
    name: str, *, signature: Signature = SIGNATURE, dtype: torch.dtype = torch.float32
) -> Network:
    """A model whose numbers are all random, in training mode."""
    architecture, parametrization = MODELS[name]
    spec = ModelSpec(
        architecture=architecture, parametrization=parametrization, signature=signature
    )
    network = spec.build(seed=0).to(dtype)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in network.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(0.1 * noise.to(dtype))
    return network


def inputs(batch: int = 7, *, steps: int = 5, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randn(batch, steps, 3, generator=generator, dtype=torch.float64).to(dtype)


def answers(network: Network, x: Tensor) -> Tensor:
    """What a copy of a network says in evaluation mode, from its parameters."""
    with torch.no_grad():
        return copy.deepcopy(network).eval()(x)


@pytest.mark.parametrize("name", MODELS)
def test_a_fused_network_answers_as_its_network_does_in_evaluation(name: str) -> None:
    network = network_of(name, dtype=torch.float64)
    expected = answers(network, inputs(dtype=torch.float64))
    torch.testing.assert_close(fuse(network)(inputs(dtype=torch.float64)), expected)
    # The order of sums differs: a few hundred roundings of 6e-8.
    single = network_of(name)
    torch.testing.assert_close(
        fuse(single)(inputs()), answers(single, inputs()), rtol=2e-4, atol=2e-5
    )


@pytest.mark.parametrize("name", [name for name in MODELS if "mlp" not in name][:6])
def test_answers_at_every_step_for_any_number_of_samples_and_steps(name: str) -> None:
    network = network_of(name, signature=EVERY)
    fused = fuse(network)
    for batch, steps in ((1, 1), (0, 4), (33, 9)):
        x = inputs(batch, steps=steps)
        torch.testing.assert_close(fused(x), answers(network, x), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", MODELS)
def test_the_network_and_its_copy_know_nothing_of_each_other(name: str) -> None:
    network = network_of(name)
    state = {key: value.clone() for key, value in network.state_dict().items()}
    fused = fuse(network)
    assert network.training
    before = fused(inputs())
    assert network.state_dict().keys() == state.keys()
    for key, value in network.state_dict().items():
        assert torch.equal(value, state[key])
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(1)
    assert torch.equal(fused(inputs()), before)
    # Nor does it hold the network's own factors now.
    network(inputs()).sum().backward()
    assert any(parameter.grad is not None for parameter in network.parameters())


@pytest.mark.parametrize("name", MODELS)
def test_no_parameter_is_left_and_no_gradient_is_kept(name: str) -> None:
    fused = fuse(network_of(name))
    assert list(fused.parameters()) == []
    assert not fused(inputs()).requires_grad
    assert not fused(inputs().requires_grad_()).requires_grad


def test_training_is_refused_with_what_to_do_instead() -> None:
    fused = fuse(network_of("rnn dense"))
    assert fused.eval() is fused
    for part in fused.modules():
        assert not part.training
    with pytest.raises(ModelError, match=r"cannot be trained.*train the network that was fused"):
        fused.train()
    assert not fused.training
    assert fused.train(mode=False) is fused


def storages(module: nn.Module) -> Iterator[torch.UntypedStorage]:
    """The memory of all tensors that are reachable from a module."""
    seen: set[int] = set()
    waiting: list[object] = [module]
    while waiting:
        found = waiting.pop()
        if id(found) in seen or isinstance(found, type):
            continue
        seen.add(id(found))
        if isinstance(found, Tensor):
            if not found.is_meta:  # takes none
                yield found.untyped_storage()
        elif isinstance(found, nn.Module | Form) or hasattr(found, "form"):
            waiting.extend(vars(found).values())
        elif isinstance(found, dict):
            waiting.extend(found.values())
        elif isinstance(found, list | tuple):
            waiting.extend(found)


def size_of(module: nn.Module) -> int:
    gc.collect()
    unique = {storage.data_ptr(): storage.nbytes() for storage in storages(module)}
    return sum(unique.values())


@pytest.mark.parametrize("name", MODELS)
def test_only_what_is_applied_is_kept(name: str) -> None:
    network = network_of(name)
    fused = fuse(network)
    structured = [part for part in network.modules() if isinstance(part, StructuredLinear)]
    own = {id(p) for part in structured for p in part.parameters()}
    plain = sum(p.numel() for p in network.parameters() if id(p) not in own)
    plain += sum(b.numel() for b in network.buffers())
    frozen = [part for part in fused.modules() if isinstance(part, StructuredLinear)]
    assert len(frozen) == len(structured)
    assert all(isinstance(part, FrozenLinear) for part in frozen)
    applied = sum(part.multiply_adds() for part in frozen)
    assert size_of(fused) <= 4 * (plain + applied)
    shared = {storage.data_ptr() for storage in storages(network) if storage.nbytes()}
    assert not shared & {storage.data_ptr() for storage in storages(fused)}
    # Nothing of what it was before a move stays.
    assert size_of(fused.double()) <= 8 * (plain + applied)


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("rnn householder, factored", LowRankForm),
        ("gru low rank, folded", DenseForm),
        ("gru tied low rank", LowRankForm),
        ("mlp, folded", DenseForm),
        ("mlp, factored", LowRankForm),
        # What is normalised in the middle is no product of matrices.
        ("highway, normalised", LowRankForm),
    ],
)
def test_the_form_is_the_one_that_pays(name: str, form: type) -> None:
    (frozen,) = (
        part for part in fuse(network_of(name)).modules() if isinstance(part, FrozenLinear)
    )
    assert type(frozen.form()) is form


def test_a_network_that_is_held_is_fused_as_it_is_held() -> None:
    network = network_of("gru tied low rank")
    expected = answers(network, inputs())
    cache_forms(network)
    fused = fuse(network)
    torch.testing.assert_close(fused(inputs()), expected, rtol=2e-4, atol=2e-5)
    del network
    gc.collect()
    torch.testing.assert_close(fused(inputs()), expected, rtol=2e-4, atol=2e-5)


def test_a_probe_stays_with_its_network() -> None:
    network = network_of("rnn dense")
    with observed(network) as probe:
        fuse(network)(inputs())
    assert probe.first is None


@pytest.mark.parametrize("name", MODELS)
def test_a_fused_network_moves_to_another_type(name: str) -> None:
    network = network_of(name)
    fused = fuse(network).double()
    expected = answers(network.double(), inputs(dtype=torch.float64))
    torch.testing.assert_close(fused(inputs(dtype=torch.float64)), expected, rtol=2e-4, atol=2e-5)
    with pytest.raises(InputError, match="float64"):
        fused(inputs())


def test_a_fused_network_says_what_runs_it() -> None:
    network = network_of("gru tied low rank")
    assert fuse(network).backends() == copy.deepcopy(network).eval().backends()
    assert fuse(network).double().backends() == ("torch",)
    assert fuse(network_of("mlp, folded")).double().backends() == ("torch",)
    assert isinstance(fuse(network), FusedNetwork)
