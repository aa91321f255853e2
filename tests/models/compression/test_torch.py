"""Plain torch layers: recognised, written, replaced, with the same answers."""

import copy
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence

from models import compress
from models.architectures import Gru, Highway, Lstm, Mlp, Resnet, Rnn
from models.compression import from_torch, plain_network, replace_layers, to_torch
from models.compression.moments import moments_of
from models.compression.parts import structured_parts
from models.compression.torch_layers.drop_ins import drop_in
from models.compression.torch_layers.layers import CompressedLSTM, CompressedRecurrent
from models.errors import ConversionError, InputError, SlotError
from models.kernels.library import library
from models.linear import cached_forms
from models.model import ModelSpec, after_step
from models.parametrizations import Dense, HouseholderSvd, LowRank
from models.spec import Signature
from tests.models.compression.test_networks import trained

Layer = Callable[..., nn.RNNBase]
LAYERS: dict[str, Layer] = {
    "rnn": nn.RNN,
    "rnn relu": lambda *a, **k: nn.RNN(*a, nonlinearity="relu", **k),
    "lstm": nn.LSTM,
    "gru": nn.GRU,
}
FORMS: dict[str, dict[str, Any]] = {
    "one layer": {},
    "two layers": {"num_layers": 2},
    "no biases": {"bias": False},
    "both directions": {"num_layers": 2, "bidirectional": True},
}


class Tagger(nn.Module):
    """As users write them."""

    def __init__(self, layer: Layer, *, embeds: bool = False, **options: Any) -> None:
        super().__init__()
        if embeds:
            self.embedding = nn.Embedding(11, 3)
        self.encoder = layer(3, 12, batch_first=True, **options)
        self.fc = nn.Linear(12 * (1 + self.encoder.bidirectional), 4)

    def forward(self, x: Tensor) -> Tensor:
        if not x.is_floating_point():
            x = self.embedding(x)
        outputs, _ = self.encoder(x)
        return self.fc(outputs[:, -1])


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def sequences() -> Tensor:
    return torch.randn(7, 5, 3)


def close(a: Any, b: Any) -> None:
    torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("form", ["one layer", "two layers", "no biases"])
@pytest.mark.parametrize("layer", LAYERS)
@torch.no_grad()
def test_a_plain_network_is_recognised_and_written_back(layer: str, form: str) -> None:
    plain, x = Tagger(LAYERS[layer], **FORMS[form]), sequences()
    nonlinearity = "relu" if layer == "rnn relu" else None
    network, spec = from_torch(plain.state_dict(), nonlinearity=nonlinearity, sequence_length=5)
    close(network(x), plain(x))
    assert spec.parameter_count() == sum(p.numel() for p in network.parameters())
    again = nn.Module()
    options = {**FORMS[form], "bias": True}
    again.rnn = LAYERS[layer](3, 12, batch_first=True, **options)
    again.readout = nn.Linear(12, 4)
    again.load_state_dict(to_torch(network, spec))
    close(again.readout(again.rnn(x)[0][:, -1]), plain(x))


@torch.no_grad()
def test_names_before_and_an_embedding_do_not_matter() -> None:
    plain = nn.Sequential(nn.Identity(), Tagger(nn.LSTM, embeds=True))
    tokens = torch.randint(0, 11, (7, 5))
    network, spec = from_torch(plain.state_dict(), sequence_length=5)
    close(network(tokens), plain(tokens))
    assert spec.signature.vocabulary == 11
    assert from_torch(plain.double().state_dict())[0](tokens).dtype == torch.float64


@torch.no_grad()
def test_linear_layers_are_a_perceptron() -> None:
    parts: list[nn.Module] = [nn.Flatten(), nn.Linear(15, 9), nn.ReLU()]
    for _ in range(10):
        parts += [nn.Linear(9, 9), nn.ReLU()]
    plain, x = nn.Sequential(*parts, nn.Linear(9, 4, bias=False)), sequences()
    # As a file that sorts names by letters has them: 11 before 3.
    state = dict(sorted(plain.state_dict().items()))
    network, spec = from_torch(state, sequence_length=5)
    close(network(x), plain(x))
    written = to_torch(network, spec)
    close(written["hidden.9.weight"], plain.state_dict()["21.weight"])
    assert set(written) == {
        f"{name}.{part}"
        for name in ("input", "readout", *(f"hidden.{k}" for k in range(10)))
        for part in ("weight", "bias")
    }


@torch.no_grad()
@pytest.mark.parametrize(
    "architecture",
    [
        Rnn(hidden_size=6, activation="tanh", layers=2),
        Lstm(hidden_size=6, structured_inputs="all"),
        Gru(hidden_size=6, reset="after", input_weight_norm=True),
        Gru(hidden_size=6, reset="after", candidate_bias=True, layers=2),
    ],
)
def test_structured_networks_are_written_with_their_first_states(architecture: Any) -> None:
    spec = ModelSpec(
        architecture=architecture,
        parametrization=LowRank(d=2),
        signature=Signature(input_size=3, sequence_length=5, output_size=4),
    )
    network, x = trained(spec, dtype=torch.float32), sequences()
    state = to_torch(network, spec)
    start = [
        state.pop(name).expand(-1, 7, -1).contiguous() for name in ("h_0", "c_0") if name in state
    ]
    kind = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}[architecture.kind]
    plain = nn.Module()
    plain.rnn = kind(3, 6, num_layers=architecture.layers, batch_first=True)
    plain.readout = nn.Linear(6, 4)
    plain.load_state_dict(state)
    outputs, _ = plain.rnn(x, tuple(start) if len(start) > 1 else start[0])
    close(plain.readout(outputs[:, -1]), network(x))


@pytest.mark.parametrize(
    ("architecture", "sentence"),
    [
        (Rnn(hidden_size=4), "activation = 'leaky_relu' is not offered by nn.RNN"),
        (Lstm(hidden_size=4, peephole=True), "nn.LSTM has no peephole"),
        (Gru(hidden_size=4), "reset = 'before' is not what nn.GRU does"),
        (Highway(hidden_size=4), "highway has no counterpart .* allowed are gru, lstm, mlp"),
    ],
)
def test_what_plain_layers_do_not_compute_is_not_written(architecture: Any, sentence: str) -> None:
    spec = ModelSpec(
        architecture=architecture,
        parametrization=Dense(),
        signature=Signature(input_size=3, sequence_length=5, output_size=4),
    )
    with pytest.raises(ConversionError, match=sentence):
        to_torch(spec.build(seed=0), spec)


def broken(change: Callable[[dict[str, Tensor]], object]) -> dict[str, Tensor]:
    state = dict(Tagger(nn.GRU, num_layers=2).state_dict())
    change(state)
    return state


def turned(name: str) -> Callable[[dict[str, Tensor]], object]:
    return lambda state: state.update({name: state[name].t()})


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        (
            lambda: Tagger(nn.LSTM, bidirectional=True).state_dict(),
            "encoder.*_reverse: a bidirectional",
        ),
        (lambda: Tagger(nn.LSTM, proj_size=5).state_dict(), "encoder.weight_hr_l0: .*proj_size"),
        (
            lambda: broken(lambda s: s.pop("encoder.weight_ih_l1")),
            "encoder.weight_ih_l1 is missing",
        ),
        (lambda: broken(lambda s: s.pop("encoder.bias_hh_l0")), "encoder.bias_hh_l0 is missing"),
        (
            lambda: broken(lambda s: s.update({f"encoder.weight_hh_l{'9' * 9}": torch.ones(1)})),
            "encoder.weight_ih_l2 is missing; .*weight_hh_l999999999 is not known",
        ),
        (
            lambda: broken(turned("encoder.weight_hh_l0")),
            r"encoder.weight_hh_l0 has shape \[12, 36\] \(transposed\?\)",
        ),
        (
            lambda: broken(turned("encoder.weight_ih_l1")),
            r"encoder.weight_ih_l1 has shape \[12, 36\] \(transposed\?\), expected is \[36, 12\]",
        ),
        (
            lambda: broken(lambda s: s.update({"norm.weight": torch.ones(3)})),
            r"no known layer: norm.weight \[3\]",
        ),
        (
            lambda: broken(lambda s: s.update({"steps": torch.tensor(3)})),
            "steps has type torch.int64",
        ),
        (
            lambda: broken(lambda s: s.update({"head.weight": torch.ones(4, 12)})),
            r"there are 2 linear layers \(fc.weight, head.weight\); allowed is one",
        ),
        (
            lambda: broken(lambda s: s.update({"fc.weight": torch.ones(4, 13)})),
            r"fc.weight has shape \[4, 13\]; a readout of 12 units",
        ),
        (
            lambda: {
                **Tagger(nn.GRU).state_dict(),
                **{f"b.{k}": v for k, v in nn.GRU(3, 4).state_dict().items()},
            },
            "several recurrent stacks: encoder., b.; allowed is one",
        ),
        (
            lambda: broken(lambda s: s["fc.bias"].fill_(float("nan"))),
            r"fc.bias has nan at \[0\]",
        ),
        (
            lambda: broken(lambda s: s.update({"fc.weight": s["fc.weight"].double()})),
            "tensors of types torch.float32, torch.float64",
        ),
        (
            lambda: nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)).state_dict(),
            "there are 2 linear layers .* at least three",
        ),
        (
            lambda: nn.Sequential(*map(nn.Linear, (3, 4, 5), (4, 5, 2))).state_dict(),
            "are no multi-layer perceptron of ours",
        ),
    ],
)
def test_what_is_not_recognised_is_named(
    state: Callable[[], dict[str, Tensor]], sentence: str
) -> None:
    with pytest.raises(ConversionError, match=sentence):
        from_torch(state())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("layer", LAYERS)
def test_a_drop_in_is_called_and_answers_like_what_it_replaces(layer: str, form: str) -> None:
    plain = LAYERS[layer](3, 6, **FORMS[form])
    ours, report = compress(plain, Dense(), inputs="all")
    assert report.weight_error == 0
    close(ours(x := torch.randn(5, 7, 3)), plain(x))
    close(ours(x[:, 0]), plain(x[:, 0]))
    places = plain.num_layers * (1 + plain.bidirectional)
    state: Any = torch.randn(places, 7, 6)
    if layer == "lstm":
        state = (state, torch.randn(places, 7, 6))
    close(ours(x, state), plain(x, state))
    first, *_ = LAYERS[layer](3, 6, batch_first=True), None
    close(compress(first, Dense())[0](x), first(x))
    ragged = [torch.randn(steps, 3) for steps in (2, 5, 1, 5)]
    packed = pack_sequence(ragged, enforce_sorted=False)
    (mine, my_last), (theirs, their_last) = ours(packed), plain(packed)
    close(pad_packed_sequence(mine), pad_packed_sequence(theirs))
    close(my_last, their_last)
    with torch.no_grad(), cached_forms(ours):
        for parameter in ours.parameters():
            if parameter.dim() > 1:  # what the kept forms were made of
                parameter.zero_()
        close(ours(x, state), plain(x, state))
        close(pad_packed_sequence(ours(packed)[0]), pad_packed_sequence(theirs))


@pytest.mark.parametrize("layer", LAYERS)
def test_drop_ins_run_on_the_same_kernels_as_architectures(layer: str) -> None:
    ours, _ = compress(LAYERS[layer](3, 6, num_layers=2, bidirectional=True), LowRank(d=2))
    assert isinstance(ours, CompressedRecurrent)
    found = ours.backends()
    assert found == (("cpp",) if library() is not None else ("torch",))
    with cached_forms(ours):
        assert ours.backends(batch_size=20) == found


def test_all_chosen_layers_are_replaced_and_nothing_else() -> None:
    plain, x = Tagger(nn.LSTM, num_layers=2), sequences()
    spec = {"encoder": {"kind": "householder_svd", "m1": 12, "m2": 12, "bound": "free"}}
    ours, report = compress(plain, spec, calibration=x)
    close(ours(x), plain(x))
    assert report.output_error is not None
    assert report.output_error < 1e-6
    assert isinstance(ours.encoder, CompressedLSTM)
    assert type(ours.fc) is nn.Linear
    assert isinstance(plain.encoder, nn.LSTM)
    assert [(row.slot, row.layer) for row in report.layers] == [
        ("encoder.recurrent", 0),
        ("encoder.recurrent", 1),
    ]
    smaller, report = compress(plain, LowRank(d=2), exclude=["fc"], calibration=(x,))
    numbers = sum(p.numel() for p in smaller.parameters())
    assert report.parameters_after == numbers < report.parameters_before
    assert report.parameters_before == sum(p.numel() for p in plain.parameters())
    after = smaller(x).detach()
    error = float((after - plain(x)).detach().norm() / plain(x).detach().norm())
    assert report.output_error == pytest.approx(error, rel=1e-4)


def test_what_was_compressed_is_loaded_into_what_was_laid_out_and_trains() -> None:
    plain, x = Tagger(nn.GRU), sequences()
    spec = HouseholderSvd(m1=2, m2=3)
    ours, _ = compress(plain, spec, inputs="square")
    other = replace_layers(plain, spec, inputs="square", seed=1)
    assert not torch.equal(other(x), ours(x))
    other.load_state_dict(ours.state_dict())
    assert torch.equal(other(x), ours(x))
    assert torch.equal(copy.deepcopy(ours)(x), ours(x))
    optimizer = torch.optim.SGD(ours.parameters(), lr=0.1)
    before = ours(x).square().mean()
    before.backward()
    optimizer.step()
    after_step(ours)
    assert ours(x).square().mean() < before


def test_transformers_keep_their_attention_and_lose_numbers() -> None:
    plain = nn.TransformerEncoderLayer(8, 2, 32, batch_first=True).eval()
    ours, report = compress(plain, {"kind": "low_rank", "d": 8})
    assert {row.slot for row in report.layers} == {"linear1.linear", "linear2.linear"}
    x = torch.randn(2, 5, 8)
    close(ours(x), plain(x))
    with torch.no_grad():
        close(ours(x), plain(x))


def test_what_cannot_be_compressed_is_told() -> None:
    tagger = Tagger(nn.LSTM)
    with pytest.raises(ConversionError, match=r"no layer .* there are encoder, fc"):
        compress(tagger, Dense(), include=["decoder*"])
    with pytest.raises(SlotError, match=r"fc.linear: householder: .* not for 4 x 12 \(leave"):
        compress(tagger, {"kind": "householder", "m": 2})
    with pytest.raises(ConversionError, match="no conversion is implemented for unitary_fft"):
        compress(tagger, {"kind": "unitary_fft"})
    with pytest.raises(ConversionError, match=r"encoder.weight_hr_l0: .*proj_size"):
        compress(Tagger(nn.LSTM, proj_size=5), Dense(), exclude=["fc"])
    with torch.no_grad():
        tagger.encoder.get_parameter("weight_hh_l0")[1, 2] = float("inf")
    with pytest.raises(ConversionError, match=r"encoder.weight_hh_l0 has inf at \[1, 2\]"):
        compress(tagger, Dense())
    tied = nn.ModuleDict({"table": nn.Embedding(5, 3), "readout": nn.Linear(3, 5)})
    tied["readout"].weight = tied["table"].weight
    with pytest.raises(ConversionError, match=r"readout.weight is shared with table"):
        compress(tied, Dense())
    ours, _ = compress(nn.LSTM(3, 4), Dense())
    with pytest.raises(InputError, match=r"input of shape \[5, 7, 2\]"):
        ours(torch.zeros(5, 7, 2))
    with pytest.raises(InputError, match=r"allowed are 2 of \[1, 7, 4\]"):
        ours(torch.zeros(5, 7, 3), (torch.zeros(1, 6, 4), torch.zeros(1, 6, 4)))


def test_a_layer_that_is_used_twice_stays_one() -> None:
    shared = nn.Linear(4, 4)
    plain = nn.Sequential(shared, nn.Tanh(), shared)
    ours, report = compress(plain, LowRank(d=4))
    assert ours.get_submodule("0") is ours.get_submodule("2")
    assert len(report.layers) == 1
    close(ours(x := torch.randn(3, 4)), plain(x))


def test_perceptrons_of_ours_are_written_too() -> None:
    signature = Signature(input_size=3, sequence_length=5, output_size=4)
    for architecture in (Mlp(hidden_size=6), Resnet(hidden_size=6)):
        spec = ModelSpec(
            architecture=architecture, parametrization=LowRank(d=2), signature=signature
        )
        network = trained(spec, dtype=torch.float32)
        state = to_torch(network, spec)
        x = sequences()
        inner = nn.functional.linear(x.flatten(1), state["input.weight"], state["input.bias"])
        close(inner, network.get_submodule("input")(x.flatten(1)))
        assert len(state) == 2 * (architecture.hidden_slot().layers + 2)


@pytest.mark.parametrize("how", [compress, replace_layers])
def test_frozen_layers_stay_frozen(how: Callable[..., Any]) -> None:
    module = nn.Sequential(nn.Linear(8, 8).requires_grad_(False), nn.Linear(8, 8))
    result = how(module, {"kind": "low_rank", "d": 2})
    frozen, free = result[0] if isinstance(result, tuple) else result
    assert not any(parameter.requires_grad for parameter in frozen.parameters())
    assert all(parameter.requires_grad for parameter in free.parameters())


@pytest.mark.parametrize("inputs", ["always", "foo", 7, None], ids=repr)
def test_an_unknown_choice_of_inputs_is_refused(inputs: Any) -> None:
    with pytest.raises(ConversionError, match="allowed are none, square, all"):
        compress(nn.GRU(4, 8), {"kind": "low_rank", "d": 2}, inputs=inputs)


@pytest.mark.parametrize("choice", ["low_rank", None, 3], ids=repr)
def test_what_is_no_parametrization_is_refused(choice: Any) -> None:
    with pytest.raises(ConversionError, match=f"^{re.escape(repr(choice))} is no parametrization"):
        compress(nn.GRU(4, 8), choice)


@pytest.mark.parametrize("calibrated", [False, True])
def test_each_module_stays_in_its_own_mode(calibrated: bool) -> None:
    plain = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4)).train()
    plain[1].eval()
    plain[2].eval()
    ours, _ = compress(plain, LowRank(d=2), calibration=torch.randn(8, 4) if calibrated else None)
    modes = [{part.training for part in child.modules()} for child in ours.children()]
    assert (ours.training, *modes) == (True, {True}, {False}, {False})
    assert [child.training for child in plain] == [True, False, False]


@torch.no_grad()
@pytest.mark.parametrize(
    "architecture", [Gru(hidden_size=6, reset="after"), Lstm(hidden_size=6), Mlp(hidden_size=6)]
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_plain_network_has_the_type_of_its_numbers(architecture: Any, dtype: torch.dtype) -> None:
    spec = ModelSpec(
        architecture=architecture,
        parametrization=Dense(),
        signature=Signature(input_size=3, sequence_length=5, output_size=4),
    )
    network = trained(spec, dtype=dtype)
    plain, state = plain_network(network, spec), to_torch(network, spec)
    assert all(torch.equal(tensor, state[name]) for name, tensor in plain.state_dict().items())
    assert {tensor.dtype for tensor in plain.state_dict().values()} == {dtype}
    x = sequences().to(dtype)
    assert plain(x).dtype == dtype
    if dtype == torch.float64:
        torch.testing.assert_close(plain(x), network(x), rtol=0, atol=1e-12)


def test_what_was_frozen_within_a_layer_stays_frozen_alone() -> None:
    def trainable(layer: nn.Module) -> dict[str, bool]:
        ours, _ = compress(layer, LowRank(d=2))
        return {name: one.requires_grad for name, one in ours.named_parameters()}

    frozen = nn.Linear(8, 8)
    frozen.weight.requires_grad_(False)
    assert trainable(frozen) == {"bias": True, "linear.left": False, "linear.right": False}
    frozen.weight.requires_grad_(True)
    frozen.bias.requires_grad_(False)
    assert trainable(frozen) == {"bias": False, "linear.left": True, "linear.right": True}
    layer = nn.GRU(8, 8, num_layers=2)
    for name in ("weight_ih_l1", "bias_ih_l0", "bias_hh_l1"):
        layer.get_parameter(name).requires_grad_(False)
    expected = dict.fromkeys(trainable(nn.GRU(8, 8, num_layers=2)), True)
    # What torch keeps as two vectors is one, and trains with either of them.
    expected |= {"inputs.1.weight": False, "cells.1.candidate_bias": False}
    assert trainable(layer) == expected
    for name, parameter in layer.named_parameters():
        parameter.requires_grad_(name.startswith("bias"))
    assert {name for name, trains in trainable(layer).items() if trains} == {
        f"{part}.{place}"
        for part, place in (
            ("inputs", "0.bias"),
            ("inputs", "1.bias"),
            ("cells", "0.candidate_bias"),
            ("cells", "1.candidate_bias"),
        )
    }


def test_numbers_of_frozen_layers_count_too() -> None:
    module = nn.Sequential(nn.Linear(8, 8).requires_grad_(False), nn.Linear(8, 4))
    ours, report = compress(module, {"0": {"kind": "low_rank", "d": 2}})
    (row,) = report.layers
    assert (row.parameters_before, row.parameters_after) == (64, 32)
    assert report.parameters_before == sum(p.numel() for p in module.parameters())
    assert report.parameters_after == sum(p.numel() for p in ours.parameters())


def matrix(compressed: nn.Module) -> Tensor:
    """The first one."""
    return next(iter(structured_parts(compressed).values())).dense_weight()[0]


class Reading(nn.Module):
    """Reads the weight of its layer, and then calls the layer or not."""

    def __init__(self, *, reads: bool, calls: bool = True) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)
        self.reads, self.calls = reads, calls

    def forward(self, x: Tensor) -> Tensor:
        if self.reads:
            x = x.to(self.layer.weight.dtype)
        return self.layer(x) if self.calls else nn.functional.linear(x, self.layer.weight)


def test_a_weight_that_is_read_has_not_read_the_identity() -> None:
    reading, blind = Reading(reads=True), Reading(reads=False)
    reading.load_state_dict(blind.state_dict())
    x = 0.03 * torch.randn(64, 2) @ torch.randn(2, 16)
    found, expected = (compress(each, LowRank(d=2), calibration=x)[1] for each in (reading, blind))
    assert found == expected
    assert found.layers[0].output_error == pytest.approx(0, abs=1e-4)


def test_a_matrix_that_saw_no_input_is_fitted_by_its_weights() -> None:
    module = Reading(reads=True, calls=False)
    ours, report = compress(module, LowRank(d=4), calibration=torch.randn(9, 16))
    assert report.layers[0].output_error is None
    assert report.output_error is not None
    other, _ = compress(module, LowRank(d=4))
    assert torch.equal(matrix(ours), matrix(other))


@pytest.mark.parametrize("fast", [True, False])
def test_moments_of_a_transformer_are_those_of_its_layers_inputs(fast: bool) -> None:
    plain = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True).eval()
    x = torch.randn(8, 5, 3) @ torch.randn(3, 16)
    read: list[Tensor] = []
    handle = plain.linear1.register_forward_pre_hook(lambda _, given: read.append(given[0]))
    plain(x)
    handle.remove()
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(fast)
    try:
        ours, report = compress(plain, LowRank(d=4), include=["linear1"], calibration=x)
        assert torch.backends.mha.get_fastpath_enabled() == fast
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
    whole = nn.functional.linear(read[0], plain.linear1.weight)
    lost = nn.functional.linear(read[0], matrix(ours)) - whole
    error = float((lost.norm() / whole.norm()).detach())
    assert report.layers[0].output_error == pytest.approx(error, rel=1e-4)


@pytest.mark.parametrize("how", [compress, replace_layers])
def test_a_layer_with_hooks_is_refused(how: Callable[..., Any]) -> None:
    pruned = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    prune.l1_unstructured(pruned[1], "weight", amount=0.5)
    with pytest.raises(ConversionError, match=r"1 has hooks.* permanent .* exclude = \['1'\]"):
        how(pruned, LowRank(d=2))
    how(pruned, LowRank(d=2), exclude=["1"])
    prune.remove(pruned[1], "weight")
    how(pruned, LowRank(d=2))
    doubled = nn.Linear(4, 4)
    doubled.register_forward_hook(lambda *given: 2 * given[2])
    with pytest.raises(ConversionError, match="the module has hooks"):
        how(doubled, LowRank(d=2))


@dataclass
class Answer:
    states: list[Tensor]
    steps: int = 0


class Answering(nn.Module):
    """Answers in a form of its own, and with zeros where its layer is not torch's."""

    def __init__(self, answer: Callable[[Tensor], Any], *, only_torch: bool = False) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.answer, self.only_torch = answer, only_torch
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Any:
        self.calls += 1
        known = type(self.layer) is nn.Linear or not self.only_torch
        return self.answer(self.layer(x) * known)


def test_output_errors_are_against_the_module_itself_in_whatever_it_answers() -> None:
    x = torch.randn(5, 8)
    module = Answering(lambda y: y, only_torch=True)
    assert compress(module, Dense(), calibration=x)[1].output_error == pytest.approx(1)
    assert float(module.calls) == 0
    errors: list[float | None] = []
    for answer in (lambda y: y, lambda y: Answer([y]), lambda y: {"y": (y, None)}):
        torch.manual_seed(0)
        module = Answering(answer)
        errors.append(compress(module, LowRank(d=2), calibration=x)[1].output_error)
    assert errors[0] == errors[1] == errors[2]
    assert errors[0] is not None
    assert errors[0] > 0.01
    nothing = Answering(lambda y: [float(y.sum()), None])
    _, report = compress(nothing, LowRank(d=2), calibration=x)
    assert report.output_error is None
    assert report.layers[0].output_error is not None


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("layer", LAYERS)
def test_packed_sequences_are_watched_without_their_padding(
    layer: str, form: str, batch_first: bool
) -> None:
    plain = LAYERS[layer](3, 6, batch_first=batch_first, **FORMS[form])
    watched = drop_in("layer", plain, "all")
    ragged = [torch.randn(steps, 3) for steps in (2, 9, 1, 2)]
    packed = pack_sequence(ragged, enforce_sorted=False)
    moments, (outputs, ends) = moments_of(watched, packed)
    expected = {name: torch.zeros_like(each) for name, each in moments.items()}
    for sequence in ragged:
        alone, _ = moments_of(watched, pack_sequence([sequence]))
        for name, each in alone.items():
            expected[name] += len(sequence) * each / sum(map(len, ragged))
    close(moments, expected)
    states, last = plain(packed)
    close(pad_packed_sequence(outputs), pad_packed_sequence(states))
    close(ends, last)
