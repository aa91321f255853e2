"""GRUs with the second bias of a candidate, as torch has it, run where those without it do."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence

from models import compress
from models.architectures import Gru
from models.architectures.gru import GruCell
from models.architectures.recurrent_network import RecurrentNetwork
from models.compression import from_torch, to_torch
from models.fused import fuse
from models.kernels.choice import Backend, prefer
from models.kernels.library import library
from models.model import ModelSpec
from models.parametrizations import AnyParametrization, Dense, LowRank, LowRankDiagonal
from models.spec import Signature
from tests.models.compression.test_networks import trained

needs_kernels = pytest.mark.skipif(library() is None, reason="no C++ compiler here")

SIZE = 12
SPECS = [Dense(), LowRank(d=3), LowRankDiagonal(d=3), LowRankDiagonal(d=3, tied=True)]
TOLERANCES = {torch.float32: 2e-5, torch.float64: 1e-12}


class Plain(nn.Module):
    """As users write it."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.rnn = nn.GRU(3, SIZE, num_layers=layers, batch_first=True)
        self.readout = nn.Linear(SIZE, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.readout(self.rnn(x)[0][:, -1])


def network_of(
    parametrization: AnyParametrization, dtype: torch.dtype
) -> tuple[RecurrentNetwork, ModelSpec]:
    spec = ModelSpec(
        architecture=Gru(
            hidden_size=SIZE,
            reset="after",
            candidate_bias=True,
            layers=2,
            learned_initial_state=False,
        ),
        parametrization=parametrization,
        signature=Signature(input_size=3, sequence_length=9, output_size=4),
    )
    network = trained(spec, dtype=dtype).requires_grad_()
    assert isinstance(network, RecurrentNetwork)
    return network, spec


def close(found: Tensor, expected: Tensor, tolerance: float) -> None:
    """Sums over samples and steps: within roundings of the largest entry."""
    error = (found - expected).abs().max().item()
    assert error <= tolerance * expected.abs().max().item()


@needs_kernels
@pytest.mark.parametrize("backend", ["cpp", "vendor", "torch"])
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize(
    "parametrization", SPECS, ids=lambda p: f"{p.kind}{getattr(p, 'tied', '')}"
)
def test_answers_and_gradients_are_those_of_torchs_gru(
    parametrization: AnyParametrization, dtype: torch.dtype, backend: Backend
) -> None:
    network, spec = network_of(parametrization, dtype)
    plain = Plain(layers=2).to(dtype)
    plain.load_state_dict(to_torch(network, spec))
    x = torch.randn(7, 9, 3, generator=torch.Generator().manual_seed(1)).to(dtype)
    with prefer(backend):
        network(x).square().sum().backward()
    plain(x).square().sum().backward()
    close(network(x), plain(x), TOLERANCES[dtype])
    for layer in range(2):
        candidate = network.get_parameter(f"cells.{layer}.candidate_bias").grad
        theirs = plain.rnn.get_parameter(f"bias_hh_l{layer}").grad
        assert candidate is not None
        assert theirs is not None
        close(candidate, theirs[2 * SIZE :], TOLERANCES[dtype])
        ours = network.get_parameter(f"inputs.{layer}.weight").grad
        theirs = plain.rnn.get_parameter(f"weight_ih_l{layer}").grad
        assert ours is not None
        assert theirs is not None
        update, reset, last = ours.chunk(3)
        close(torch.cat((reset, update, last)), theirs, TOLERANCES[dtype])


@needs_kernels
@pytest.mark.parametrize(
    "parametrization", SPECS, ids=lambda p: f"{p.kind}{getattr(p, 'tied', '')}"
)
def test_networks_say_that_our_kernels_run_them(parametrization: AnyParametrization) -> None:
    network, _ = network_of(parametrization, torch.float32)
    assert network.backends(batch_size=4) == ("cpp",)
    assert fuse(network).backends() == ("cpp",)
    doubled = ("vendor",) if parametrization.kind == "dense" else ("torch",)
    assert network.double().backends(batch_size=4) == doubled


@needs_kernels
def test_a_gru_that_plain_torch_trained_is_no_loop_here(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    plain, x = Plain(layers=2), torch.randn(5, 9, 3)
    network, _ = from_torch(plain.state_dict(), sequence_length=9)
    small, _ = compress(plain, LowRank(d=4))
    both, _ = compress(nn.GRU(3, SIZE, bidirectional=True), LowRank(d=4))
    ragged = pack_sequence([torch.randn(steps, 3) for steps in (2, 5, 1, 5)], enforce_sorted=False)
    lengths = torch.tensor([9, 1, 4, 8, 9])
    with torch.no_grad():
        # In double precision it is a loop.
        doubled = [copy.deepcopy(module).double() for module in (network, small, both)]
        expected = [
            doubled[0](x.double(), lengths),
            doubled[1](x.double()),
            doubled[2](ragged.double())[0].data,
        ]
        monkeypatch.setattr(GruCell, "forward", _refuse)
        found = [network(x, lengths), small(x), both(ragged)[0].data]
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-5, atol=1e-6)


def _refuse(*_: object, **__: object) -> None:
    raise AssertionError("the loop was not to run")
