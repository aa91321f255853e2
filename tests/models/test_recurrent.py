"""What all recurrent architectures share: dropout, structured and normalised inputs, memory."""

import weakref

import pytest
import torch

from models.architectures import Gru, Lstm, Rnn
from models.architectures.recurrent import Recurrent
from models.architectures.recurrent_network import RecurrentNetwork
from models.architectures.rnn import RnnCell
from models.model import ModelSpec, after_step, parameter_groups
from models.network import observed
from models.parametrizations import Dense, HouseholderSvd, LowRank
from models.spec import Signature, Slot


def network(
    architecture: Recurrent, signature: Signature, **parametrization: object
) -> RecurrentNetwork:
    spec = ModelSpec.model_validate(
        {
            "architecture": architecture,
            "parametrization": {"kind": "dense", **parametrization},
            "signature": signature,
        }
    )
    module = spec.build(seed=0).double()
    assert isinstance(module, RecurrentNetwork)
    return module


@torch.no_grad()
def transparent_(model: RecurrentNetwork) -> RecurrentNetwork:
    """Input matrices of 0, first states of 1, and a readout that passes the state on, in place."""
    for name, parameter in model.named_parameters():
        if name.startswith("inputs."):
            parameter.zero_()
    model.get_parameter("initial_state").fill_(1)
    model.readout.get_parameter("weight").copy_(torch.eye(model.recurrent.in_features))
    return model


def linear_model(dropout: float, *, size: int, every: bool = True) -> RecurrentNetwork:
    """`h_t = mask * h_{t-1}` from `h_0 = 1`: what comes out is the mask, to the power t."""
    signature = Signature(
        input_size=1,
        sequence_length=6,
        output_size=size,
        output_steps="every" if every else "last",
    )
    architecture = Rnn(hidden_size=size, activation="identity", recurrent_dropout=dropout)
    return transparent_(network(architecture, signature, initialisation="identity"))


def test_recurrent_dropout_keeps_one_mask_for_all_steps() -> None:
    torch.manual_seed(0)
    outputs = linear_model(0.5, size=32)(torch.zeros(8, 6, 1, dtype=torch.float64))
    kept = outputs[:, 0] > 0
    assert 0.3 < kept.double().mean() < 0.7
    assert not torch.equal(kept[0], kept[1])  # a sample has its own
    for step in range(6):
        assert torch.equal(outputs[:, step], kept * 2.0 ** (step + 1))


def test_recurrent_dropout_draws_anew_for_every_pass_and_is_off_in_evaluation() -> None:
    torch.manual_seed(0)
    model, x = linear_model(0.5, size=32), torch.zeros(4, 6, 1, dtype=torch.float64)
    assert not torch.equal(model(x), model(x))
    assert torch.equal(model.eval()(x), torch.ones(4, 6, 32, dtype=torch.float64))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
def test_masks_keep_the_mean(share: float) -> None:
    torch.manual_seed(0)
    model = linear_model(share, size=16, every=False)
    state = model(torch.zeros(5000, 1, 1, dtype=torch.float64))
    assert state.unique().tolist() == pytest.approx([0, 1 / (1 - share)])
    deviation = (share / (1 - share) / state.numel()) ** 0.5
    assert abs(state.mean().item() - 1) < 5 * deviation


@pytest.mark.parametrize("masks", ["tied", "per_gate"])
def test_gates_share_a_mask_or_have_their_own(masks: str) -> None:
    """An LSTM whose output gate and candidate tell which of them saw the state.

    From h_0 = 1 with input gate 1 and forget gate 0 the cell is tanh(2) where the candidate saw
    it, else 0; the output gate is 1 where it saw it, else 1/2.
    """
    size = 64
    signature = Signature(input_size=1, sequence_length=1, output_size=size)
    model = transparent_(
        network(
            Lstm.model_validate(
                {"hidden_size": size, "recurrent_dropout": 0.5, "dropout_masks": masks}
            ),
            signature,
        )
    )
    with torch.no_grad():
        weight = model.recurrent.get_parameter("weight").zero_()
        weight[2].diagonal().fill_(1)
        weight[3].diagonal().fill_(100)
        bias = model.get_parameter("inputs.0.bias")
        bias[:size], bias[size : 2 * size] = 100, -100
    torch.manual_seed(0)
    h = model(torch.zeros(20, 1, 1, dtype=torch.float64))
    both = torch.tanh(torch.tanh(torch.tensor(2.0, dtype=torch.float64)))
    candidate_saw = h > 0.1
    output_saw = torch.isclose(h[candidate_saw], both)
    assert torch.isclose(h[candidate_saw][~output_saw], both / 2).all()
    if masks == "tied":
        assert output_saw.all()
    else:
        assert output_saw.double().mean().item() == pytest.approx(0.5, abs=0.1)


def test_stacked_layers_have_masks_of_their_own() -> None:
    """Two identity layers: the upper one adds the lower state to its own masked state."""
    size = 256
    signature = Signature(input_size=1, sequence_length=1, output_size=size)
    architecture = Rnn(hidden_size=size, layers=2, activation="identity", recurrent_dropout=0.5)
    model = transparent_(network(architecture, signature, initialisation="identity"))
    with torch.no_grad():
        model.get_parameter("inputs.1.weight").copy_(torch.eye(size))
    torch.manual_seed(0)
    state = model(torch.zeros(1, 1, 1, dtype=torch.float64))
    assert state.unique().tolist() == [0, 2, 4]


def test_input_dropout_drops_whole_steps_of_a_sample() -> None:
    signature = Signature(input_size=2, sequence_length=50, output_size=3, output_steps="every")
    model = network(
        Rnn(hidden_size=3, activation="identity", input_dropout=0.25, leak=1.0), signature
    )
    with torch.no_grad():
        model.recurrent.get_parameter("weight").zero_()
        model.get_parameter("inputs.0.bias").fill_(0.3)
        model.readout.get_parameter("weight").copy_(torch.eye(3))
    x = torch.randn(40, 50, 2, dtype=torch.float64)
    torch.manual_seed(0)
    dropped = model(x)
    whole = model.eval()(x)
    kept = dropped.abs().sum(-1, keepdim=True) > 0
    torch.testing.assert_close(dropped, kept * whole / 0.75)
    assert kept.double().mean().item() == pytest.approx(0.75, abs=0.05)


def test_readout_dropout_hides_the_state_from_the_readout_alone() -> None:
    signature = Signature(input_size=1, sequence_length=6, output_size=64, output_steps="every")
    model = transparent_(
        network(
            Rnn(hidden_size=64, activation="identity", readout_dropout=0.5),
            signature,
            initialisation="identity",
        )
    )
    torch.manual_seed(0)
    outputs = model(torch.zeros(2, 6, 1, dtype=torch.float64))
    # Masked anew at every step, and nothing of it comes back: never 0 for good, never above 2.
    assert outputs.unique().tolist() == [0, 2]
    assert not torch.equal(outputs[:, 0], outputs[:, 1])


def test_normalised_input_rows_are_gain_times_direction_and_are_cut_to_ten() -> None:
    signature = Signature(input_size=3, sequence_length=4, output_size=2)
    plain, normal = (
        network(Gru(hidden_size=5, layers=2, input_weight_norm=choice), signature)
        for choice in (False, True)
    )
    for layer in range(2):
        start = plain.get_parameter(f"inputs.{layer}.weight")
        direction = normal.get_parameter(f"inputs.{layer}.weight.direction")
        gain = normal.get_parameter(f"inputs.{layer}.weight.gain")
        assert gain.shape == (15,)
        torch.testing.assert_close(gain, start.norm(dim=-1), atol=1e-6, rtol=0)
        torch.testing.assert_close(direction, start)
    x = torch.randn(2, 4, 3, dtype=torch.float64)
    torch.testing.assert_close(plain(x), normal(x), atol=1e-6, rtol=0)
    direction = normal.get_parameter("inputs.0.weight.direction")
    with torch.no_grad():
        direction[0] *= 1000
        direction[1] *= 0.01
    before, short = normal(x), direction[1].clone()
    after_step(normal)
    assert direction.norm(dim=-1).max().item() == pytest.approx(10)
    assert torch.equal(direction[1], short)
    torch.testing.assert_close(normal(x), before, atol=1e-12, rtol=0)


def test_structured_inputs_are_cut_to_what_they_hold() -> None:
    signature = Signature(input_size=3, sequence_length=4, output_size=2)
    spec = ModelSpec(
        architecture=Gru(hidden_size=12, layers=2, structured_inputs="all"),
        parametrization=HouseholderSvd(m1=8, m2=12),
        signature=signature,
    )
    slots = spec.architecture.slots(signature)
    assert slots == {
        "recurrent": Slot(out_features=12, in_features=12, gates=3, layers=2),
        "inputs.0": Slot(out_features=12, in_features=3, gates=3, auxiliary=True),
        "inputs.1": Slot(out_features=12, in_features=12, gates=3, auxiliary=True, layer=1),
    }
    shapes = spec.tensor_shapes()
    assert shapes["inputs.0.linear.p"] == (3, 3)
    assert shapes["inputs.1.linear.p"] == (3, 12)
    assert shapes["recurrent.p"] == (6, 12)
    low_rank = spec.model_copy(update={"parametrization": LowRank(d=5)})
    assert low_rank.tensor_shapes()["inputs.0.linear.right"] == (3, 1, 3)


@pytest.mark.parametrize("architecture", [Rnn(), Lstm(), Gru()], ids=repr)
def test_probe_reads_each_samples_gradient_at_both_ends_of_time(architecture: Recurrent) -> None:
    """|dL/dh_0| of the lower layer and |dL/dh_T| of the upper one, sample by sample."""
    signature = Signature(input_size=3, sequence_length=5, output_size=4)
    small = architecture.model_copy(update={"hidden_size": 6, "layers": 2})
    model = network(small, signature)
    x = torch.randn(3, 5, 3, dtype=torch.float64)
    with observed(model) as probe:
        model(x).square().sum().div(3).backward()
    first = last = 0.0
    for sample in x:
        model.zero_grad()
        output = model(sample[None])
        output.square().sum().backward()
        start = model.get_parameter("initial_state").grad
        assert start is not None
        first += start[0, 0].norm().item() / 3
        readout = model.readout.get_parameter("weight")
        last += (2 * output @ readout).norm().item() / 3
    assert probe.first == pytest.approx(first, rel=1e-10)
    assert probe.last == pytest.approx(last, rel=1e-10)


def test_a_model_that_answers_once_keeps_only_the_last_state_in_inference() -> None:
    """Each state of the upper layer is freed as soon as the next one is there."""
    signature = Signature(input_size=1, sequence_length=20, output_size=2)
    model = network(Rnn(hidden_size=3, activation="identity"), signature).eval()
    states: list[weakref.ref[torch.Tensor]] = []
    most = 0

    def counting(state: torch.Tensor) -> torch.Tensor:
        nonlocal most
        new = state + 0
        states.append(weakref.ref(new))
        most = max(most, sum(reference() is not None for reference in states))
        return new

    model.cells[0] = RnnCell(counting)
    with torch.no_grad():
        model(torch.zeros(1, 20, 1, dtype=torch.float64))
    assert len(states) == 20
    assert most <= 3


def test_learning_rate_scales_reach_structured_inputs() -> None:
    signature = Signature(input_size=3, sequence_length=4, output_size=2)
    spec = ModelSpec(
        architecture=Rnn(hidden_size=6, structured_inputs="all"),
        parametrization=HouseholderSvd(m1=2, m2=2, r=0.05),
        signature=signature,
    )
    model = spec.build(seed=0)
    plain, scaled = parameter_groups(model, 0.1)
    assert plain["lr"] == 0.1
    assert scaled["lr"] == pytest.approx(0.1 / (2 * 0.05))
    names = {name for name, p in model.named_parameters() if any(p is q for q in scaled["params"])}
    assert names == {"recurrent.p", "inputs.0.linear.p"}
    dense = spec.model_copy(update={"parametrization": Dense()})
    assert len(parameter_groups(dense.build(seed=0), 0.1)) == 1
