"""Conversions to layers that are stored each in its own way."""

import copy
import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from models import compress
from models.architectures import AnyArchitecture, Gru, Highway, Lstm, Mlp, Rnn
from models.compression import convert, convert_path, convert_weight, fold, replace_layers, to_torch
from models.compression.parts import structured_parts
from models.errors import ConversionError, SlotError
from models.fused import fuse
from models.model import ModelSpec
from models.parametrizations import (
    AnyFamily,
    Dense,
    FactorizedSvd,
    Householder,
    HouseholderSvd,
    LowRank,
    LowRankDiagonal,
    PackedRotations,
    PerLayer,
    RotationSvd,
    UnitaryFft,
)
from models.parametrizations.per_layer import PerLayerLinear
from models.spec import Signature, Slot
from tests.models.compression.targets import gaussian, relative_error
from tests.models.compression.test_networks import batch, trained

MEMBERS: list[AnyFamily] = [
    Dense(),
    FactorizedSvd(margin=1.0),
    Householder(m=3),
    HouseholderSvd(m1=2, m2=2, r=0.5),
    LowRank(d=2, tied=True),
    LowRankDiagonal(d=2),
    PackedRotations(count=3),
    RotationSvd(count_u=2, count_v=2),
]
THREE = PerLayer(layers=(LowRank(d=2, tied=True), HouseholderSvd(m1=3, m2=2, r=1.0), Dense()))
ARCHITECTURES: dict[str, AnyArchitecture] = {
    "rnn, all inputs": Rnn(hidden_size=8, layers=3, structured_inputs="all"),
    "lstm": Lstm(hidden_size=8, layers=3),
    "gru": Gru(hidden_size=8, layers=3, reset="after", candidate_bias=True),
    "mlp": Mlp(hidden_size=8, layers=3),
    "highway": Highway(hidden_size=8, layers=3),
    "highway, normalised": Highway(hidden_size=8, layers=3, stack="batch_normalised"),
}
SIGNATURE = Signature(input_size=3, sequence_length=5, output_size=4)


def spec_of(name: str, parametrization: Any = None) -> ModelSpec:
    return ModelSpec(
        architecture=ARCHITECTURES[name],
        parametrization=parametrization or Dense(),
        signature=SIGNATURE,
    )


def moments(count: int, size: int) -> Tensor:
    roots = gaussian(count, size, size, seed=5)
    return roots @ roots.mT


def test_every_layer_is_converted_by_the_algorithm_of_its_family() -> None:
    gates = 2
    weight, seen = gaussian(gates * len(MEMBERS), 8, 8), moments(gates * len(MEMBERS), 8)
    slot = Slot(out_features=8, in_features=8, gates=gates, layers=len(MEMBERS))
    found = convert_weight(weight, PerLayer(layers=tuple(MEMBERS)), slot=slot, moments=seen)
    one = Slot(out_features=8, in_features=8, gates=gates)
    for layer, member in enumerate(MEMBERS):
        part = slice(gates * layer, gates * (layer + 1))
        alone = convert_weight(weight[part], member, slot=one, moments=seen[part])
        torch.testing.assert_close(
            found.dense_weight()[part], alone.dense_weight(), rtol=0, atol=1e-12
        )


def test_errors_of_no_layer_rise_with_the_counts() -> None:
    weight, slot = gaussian(3, 9, 9), Slot(out_features=9, in_features=9, layers=3)
    path = [
        PerLayer(layers=(HouseholderSvd(m1=m, m2=m, r=1.0), Householder(m=m), LowRank(d=m)))
        for m in (1, 2, 4, 8)
    ]
    errors = [
        [relative_error(w, m) for w, m in zip(weight, linear.members, strict=True)]
        for linear in convert_path(weight, path, slot=slot)
    ]
    for before, after in itertools.pairwise(errors):
        assert all(b <= a * (1 + 1e-9) for a, b in zip(before, after, strict=True))
    assert all(last < first for first, last in zip(errors[0], errors[-1], strict=True))


def test_what_was_converted_earlier_has_the_same_layers() -> None:
    weight, slot = gaussian(2, 6, 6), Slot(out_features=6, in_features=6, layers=2)
    target = PerLayer(layers=(LowRank(d=2), LowRank(d=2)))
    others = [LowRank(d=1), PerLayer(layers=(LowRank(d=1), Dense()))]
    for earlier in (convert_weight(weight, other, slot=slot) for other in others):
        with pytest.raises(ConversionError, match="earlier has other layers"):
            convert_weight(weight, target, slot=slot, earlier=earlier)


def test_a_member_without_a_conversion_is_refused() -> None:
    for refused in (
        lambda: convert_weight(gaussian(2, 4, 4), PerLayer(layers=(Dense(), UnitaryFft()))),
        lambda: compress(nn.LSTM(3, 4, 2), PerLayer(layers=(Dense(), UnitaryFft()))),
    ):
        with pytest.raises(ConversionError, match=r"for unitary_fft.*allowed are dense, "):
            refused()


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_reports_tell_what_each_layer_lost_and_what_it_saves(name: str) -> None:
    network = trained(spec_of(name))
    target = spec_of(name, THREE)
    converted, report = convert(network, target, calibration=batch())
    main, *others = structured_parts(converted)
    rows = [row for row in report.layers if row.slot == main]
    plain = next(iter(target.architecture.slots(SIGNATURE).values())).gates * 64
    linear = structured_parts(converted)[main]
    assert isinstance(linear, PerLayerLinear)
    assert [row.layer for row in rows] == [0, 1, 2]
    assert [row.parameters_before for row in rows] == [plain] * 3
    for row, member in zip(rows, linear.members, strict=True):
        assert row.parameters_after == sum(p.numel() for p in member.parameters())
        assert row.multiply_adds_after == member.multiply_adds()
    assert rows[0].weight_error > 0.1
    assert rows[2].weight_error < 1e-12
    assert rows[2].parameters_after == plain
    assert report.parameters_after == target.parameter_count()
    assert bool(others) == ("inputs" in name)
    # Back again, from what has layers of its own.
    back, again = convert(converted, spec_of(name), calibration=batch())
    assert [row.parameters_before for row in again.layers if row.slot == main] == [
        row.parameters_after for row in rows
    ]
    torch.testing.assert_close(back(batch()), converted(batch()), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_at_full_size_a_network_answers_as_before(name: str) -> None:
    full = PerLayer(layers=(HouseholderSvd(m1=8, m2=8, bound="free"), LowRank(d=8), Dense()))
    network = trained(spec_of(name))
    converted, report = convert(network, spec_of(name, full), calibration=batch())
    assert report.output_error is not None
    if "inputs" not in name:  # auxiliary matrices are cut to a rank that saves something
        assert report.output_error < 1e-9
        torch.testing.assert_close(converted(batch()), network(batch()), rtol=1e-9, atol=1e-9)
    folded, _ = fold(converted, spec_of(name, full))
    torch.testing.assert_close(folded(batch()), converted(batch()), rtol=1e-9, atol=1e-9)


def test_a_network_of_mixed_layers_is_written_as_plain_ones() -> None:
    spec = spec_of("lstm", THREE)
    network = trained(spec)
    state = to_torch(network, spec)
    module = nn.LSTM(3, 8, 3, batch_first=True).double()
    prefix = "rnn."
    module.load_state_dict(
        {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
    )
    first = tuple(state[key].expand(-1, 6, -1).contiguous() for key in ("h_0", "c_0"))
    states, _ = module(batch(), first)
    found = states[:, -1] @ state["readout.weight"].T + state["readout.bias"]
    torch.testing.assert_close(found, network(batch()), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(
        fuse(copy.deepcopy(network).float())(batch(dtype=torch.float32)).double(),
        network(batch()),
        rtol=1e-3,
        atol=1e-4,
    )


DOCUMENT = {
    "kind": "per_layer",
    "layers": [
        {"kind": "low_rank", "d": 3},
        {"kind": "householder_svd", "m1": 12, "m2": 12, "r": 1},
    ],
}


class Tagger(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.encoder = nn.LSTM(3, 12, batch_first=True, **options)
        self.fc = nn.Linear(12 * (1 + self.encoder.bidirectional), 4)

    def forward(self, x: Tensor) -> Tensor:
        outputs, _ = self.encoder(x)
        return self.fc(outputs[:, -1])


def test_an_lstm_of_torch_has_a_form_for_each_layer() -> None:
    torch.manual_seed(0)
    module, x = Tagger(num_layers=2), torch.randn(7, 5, 3)
    choice = {"encoder": DOCUMENT, "fc": {"kind": "low_rank", "d": 2}}
    small, report = compress(module, choice, calibration=x)
    rows = {(row.slot, row.layer): row for row in report.layers}
    assert rows.keys() == {("encoder.recurrent", 0), ("encoder.recurrent", 1), ("fc.linear", 0)}
    assert rows["encoder.recurrent", 0].parameters_after == 4 * 2 * 12 * 3
    assert rows["encoder.recurrent", 0].weight_error > 0.1
    assert report.parameters_after == sum(p.numel() for p in small.parameters())
    again = replace_layers(module, choice)
    again.load_state_dict(small.state_dict())
    torch.testing.assert_close(again(x), small(x), rtol=0, atol=0)
    small(x).square().sum().backward()
    assert all(p.grad is not None for p in small.parameters())


def test_directions_of_a_layer_are_places_of_their_own() -> None:
    torch.manual_seed(0)
    module, x = Tagger(bidirectional=True), torch.randn(7, 5, 3)
    small, _ = compress(module, DOCUMENT, include=["encoder"], inputs="all")
    state = small.state_dict()
    assert state["encoder.recurrent.layers.0.left"].shape == (4, 12, 3)
    assert "encoder.recurrent.layers.1.p" in state
    assert state["encoder.inputs.0.linear.left"].shape[-1] == 1
    assert "encoder.inputs.1.linear.p" in state
    full = {"kind": "per_layer", "layers": [{"kind": "dense"}, {"kind": "low_rank", "d": 12}]}
    same, _ = compress(module, full, include=["encoder"])
    torch.testing.assert_close(same(x), module(x), rtol=1e-4, atol=1e-5)


def test_layers_that_are_not_as_many_are_told() -> None:
    with pytest.raises(SlotError, match=r"encoder.recurrent: per_layer: 2 members do not fit 3"):
        compress(Tagger(num_layers=3), DOCUMENT, include=["encoder"])
    with pytest.raises(SlotError, match=r"fc.linear: per_layer: 2 members .*exclude"):
        compress(Tagger(num_layers=2), DOCUMENT)
