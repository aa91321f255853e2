"""Layers that are stored each in its own way, in every architecture."""

from collections.abc import Iterator
from typing import Any

import onnxruntime
import pytest
import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from models import checkpoint
from models.architectures import Architecture, Gru, Highway, Lstm, Mlp, Resnet, Rnn
from models.compression import fold
from models.compression.parts import structured_parts
from models.errors import SlotError
from models.exports.onnx.export import export
from models.forms import DenseForm, Form, LayeredForm, LowRankForm, MaskedForm, joined
from models.fused import fuse
from models.linear import cached_forms, stored_matrices
from models.math.initialisation import generator_of
from models.model import ModelSpec, after_step, parameter_groups, penalty, spectral_margin
from models.network import Network
from models.parametrizations import (
    AnyParametrization,
    Dense,
    Family,
    HouseholderSvd,
    LowRank,
    LowRankDiagonal,
    PackedRotations,
    PerLayer,
)
from models.parametrizations.per_layer import PerLayerLinear
from models.report import parameter_report
from models.spec import Slot
from tests.conformance.model_specs import EVERY, LAST, admitted, pair_name, pairs, small
from tests.conformance.variants import drawn, holds

Pair = tuple[type[Architecture], type[Family]]

MIXED: dict[str, Architecture] = {
    "rnn": Rnn(hidden_size=8, layers=3),
    "rnn, all inputs": Rnn(hidden_size=8, layers=3, structured_inputs="all"),
    "lstm": Lstm(hidden_size=8, layers=3),
    "lstm, peephole": Lstm(hidden_size=8, layers=3, peephole=True),
    "gru, before": Gru(hidden_size=8, layers=3),
    "gru, after": Gru(hidden_size=8, layers=3, reset="after"),
    "gru, candidate bias": Gru(hidden_size=8, layers=3, reset="after", candidate_bias=True),
    "gru, masked": Gru(hidden_size=8, layers=3, recurrent_dropout=0.3),
    "mlp": Mlp(hidden_size=8, layers=3),
    "mlp, all inputs": Mlp(hidden_size=8, layers=3, structured_inputs="all"),
    "highway": Highway(hidden_size=8, layers=3),
    "highway, normalised": Highway(hidden_size=8, layers=3, stack="batch_normalised"),
}
KINDS = PerLayer(
    layers=(
        LowRank(d=2, tied=True),
        HouseholderSvd(m1=3, m2=1, penalty=0.1),
        PackedRotations(count=2),
    )
)


def per_layer(pair: Pair, *, depth: int) -> ModelSpec:
    """A model whose layers have a small and a large member of a family by turns."""
    variant, family = pair
    architecture = small(variant, depth=depth)
    main = next(iter(architecture.slots(LAST).values()))
    ends = [drawn(family, main, share) for share in (0.0, 1.0)]
    ends = [member for member in ends if holds(member, main)] or [drawn(family, main, 0.5)]
    layers = [ends[layer % len(ends)].model_dump() for layer in range(main.layers)]
    return ModelSpec.model_validate(
        {
            "architecture": architecture.model_dump(),
            "parametrization": {"kind": "per_layer", "layers": layers},
            "signature": LAST,
        }
    )


def mixed(name: str, parametrization: PerLayer = KINDS, **changes: Any) -> ModelSpec:
    return ModelSpec.model_validate(
        {
            "architecture": MIXED[name].model_dump() | changes,
            "parametrization": parametrization.model_dump(),
            "signature": LAST,
        }
    )


def trained(spec: ModelSpec) -> Network:
    """A network whose every number is away from its start, statistics included."""
    network = spec.build(seed=1)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for name, value in network.state_dict().items():
            value += 0.2 * torch.randn(value.shape, generator=generator)
            if name.endswith("std"):
                value.abs_().add_(0.1)
    after_step(network)
    return network.eval()


def batch(*, dtype: torch.dtype = torch.float64, samples: int = 4) -> Tensor:
    return torch.randn(samples, 5, 3, generator=torch.Generator().manual_seed(3)).to(dtype)


def main_part(network: Network) -> PerLayerLinear:
    found = structured_parts(network)[_name(network)]
    assert isinstance(found, PerLayerLinear)
    return found


def _name(network: Network) -> str:
    """The name of the main slot."""
    return "recurrent" if hasattr(network, "recurrent") else "hidden"


@pytest.fixture(params=pairs(), ids=pair_name)
def pair(request: pytest.FixtureRequest) -> Pair:
    return request.param


@pytest.fixture(params=MIXED)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def test_counts_are_those_of_the_built_model(pair: Pair) -> None:
    for depth in (1, 2, 3):
        spec = per_layer(pair, depth=depth)
        network = spec.build(seed=0)
        assert spec.parameter_count() == sum(p.numel() for p in network.parameters())
        report = parameter_report(spec)
        assert report.totals.parameters == spec.parameter_count()
        assert report.totals.paper_parameters == spec.paper_count()
        assert report.totals.degrees_of_freedom <= report.totals.parameters
        assert report.totals.main_parameters == spec.main_count()
        main = main_part(network)
        assert spec.main_count() == sum(p.numel() for p in main.parameters())
        rows = {row.name: row for row in report.rows if row.level == "module"}
        row = rows[_name(network)]
        assert row.shape == (main.num_matrices, main.out_features, main.in_features)
        members = [rows[f"{row.name}.layers.{layer}"] for layer in range(len(main.members))]
        assert sum(one.multiply_adds or 0 for one in members) == row.multiply_adds
        assert sum(one.degrees_of_freedom or 0 for one in members) == row.degrees_of_freedom
        assert sum(one.parameters for one in members) == row.parameters == spec.main_count()


def test_checkpoint_brings_back_the_outputs_bit_for_bit(pair: Pair) -> None:
    spec = per_layer(pair, depth=3)
    network = trained(spec)
    loaded = checkpoint.load(checkpoint.save_bytes(network, spec))
    assert loaded.spec == spec
    x = batch(dtype=torch.float32)
    assert torch.equal(network(x), loaded.module.eval()(x))
    names = {key.split(".")[2] for key in network.state_dict() if ".layers." in key}
    assert names == {str(layer) for layer in range(len(main_part(network).members))}


def test_every_layer_is_what_its_member_builds_alone(pair: Pair) -> None:
    spec = per_layer(pair, depth=3)
    assert isinstance(spec.parametrization, PerLayer)
    slot = next(iter(spec.architecture.slots(LAST).values()))
    whole = spec.parametrization.build(slot, generator=generator_of(7)).double()
    generator = generator_of(7)
    one = Slot(
        out_features=slot.out_features,
        in_features=slot.in_features,
        gates=slot.gates,
        field=slot.field,
        residual=slot.residual,
    )
    alone = [
        member.build(one, generator=generator).double().dense_weight()
        for member in spec.parametrization.layers
    ]
    torch.testing.assert_close(whole.dense_weight(), torch.cat(alone), rtol=0, atol=1e-12)
    for found, expected in zip(whole.form().split(slot.gates), alone, strict=True):
        identity = torch.eye(whole.in_features, dtype=torch.float64)
        rows = torch.cat(found.matmul(identity), dim=-1).t()
        torch.testing.assert_close(rows, expected.flatten(0, 1), rtol=0, atol=1e-12)


def test_alike_layers_learn_as_those_that_are_stored_together(pair: Pair) -> None:
    spec = per_layer(pair, depth=2)
    assert isinstance(spec.parametrization, PerLayer)
    member = spec.parametrization.layers[0]
    count = len(spec.parametrization.layers)
    alike = spec.model_copy(update={"parametrization": PerLayer(layers=(member,) * count)})
    together = spec.model_copy(update={"parametrization": member})
    shared, network = trained(together).double(), trained(alike).double()
    name = _name(network)
    stored = shared.state_dict()
    split = {
        f"{name}.layers.{layer}.{key.removeprefix(f'{name}.')}": part
        for key, tensor in stored.items()
        if key.startswith(f"{name}.")
        for layer, part in enumerate(torch.chunk(tensor, count))
    }
    others = {key: value for key, value in stored.items() if not key.startswith(f"{name}.")}
    network.load_state_dict({**others, **split})
    torch.testing.assert_close(network(batch()), shared(batch()), rtol=1e-10, atol=1e-12)
    for one in (network, shared):
        loss = one(batch()).square().sum()
        extra = penalty(one)
        (loss if extra is None else loss + extra).backward()
    wanted = {key: p.grad for key, p in shared.named_parameters()}
    for key, parameter in network.named_parameters():
        if key.startswith(f"{name}."):
            _, _, layer, rest = key.split(".", 3)
            whole = wanted[f"{name}.{rest}"]
            assert whole is not None
            expected = torch.chunk(whole, count)[int(layer)]
        else:
            expected = wanted[key]
        torch.testing.assert_close(parameter.grad, expected, rtol=1e-9, atol=1e-11)


def test_mixed_layers_answer_as_plain_matrices_do(name: str) -> None:
    spec = mixed(name)
    network = trained(spec).double()
    dense, twin = fold(network, spec)
    assert isinstance(twin.parametrization, Dense)
    torch.testing.assert_close(network(batch()), dense(batch()), rtol=1e-9, atol=1e-10)
    if "normalised" not in name:
        members = [member.dense_weight() for member in main_part(network).members]
        plain = dense.state_dict()
        stored = plain["recurrent.weight" if "recurrent.weight" in plain else "hidden.weight"]
        torch.testing.assert_close(stored, torch.cat(members), rtol=0, atol=1e-12)


def test_mixed_layers_are_trained_by_kernels_as_by_torch(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every gradient, in single precision, against the loop in double precision."""
    network = trained(mixed(name))
    exact = trained(mixed(name)).double()
    exact.load_state_dict(network.state_dict())
    network(batch(dtype=torch.float32)).square().sum().backward()
    monkeypatch.setenv("REFLECTORY_BACKEND", "torch")
    exact(batch()).square().sum().backward()
    for (key, found), expected in zip(network.named_parameters(), exact.parameters(), strict=True):
        assert found.grad is not None, key
        assert expected.grad is not None, key
        allowed = 2e-4 * float(expected.grad.abs().max()) + 1e-6
        torch.testing.assert_close(found.grad.double(), expected.grad, rtol=0, atol=allowed)


def test_every_parameter_of_mixed_layers_trains(name: str) -> None:
    network = mixed(name).build(seed=0).train()
    grouped = [p for group in parameter_groups(network, 0.1) for p in group["params"]]
    assert len(grouped) == len(set(grouped)) == len(list(network.parameters()))
    scales = [group["lr"] for group in parameter_groups(network, 0.1)]
    assert scales == [0.1, pytest.approx(0.1 / (2 * 0.01))]
    optimizer = torch.optim.SGD(parameter_groups(network, 1e-3))
    before = [p.detach().clone() for p in network.parameters()]
    for _ in range(2):
        optimizer.zero_grad()
        loss = network(batch(dtype=torch.float32, samples=16)).square().sum()
        extra = penalty(network)
        assert extra is not None
        (loss + extra).backward()
        optimizer.step()
        after_step(network)
    moved = [not torch.equal(a, b) for a, b in zip(before, network.parameters(), strict=True)]
    assert all(moved)


def test_held_and_fused_mixed_layers_answer_the_same(name: str) -> None:
    network = trained(mixed(name))
    x = batch(dtype=torch.float32)
    expected = network(x).detach()
    with cached_forms(network):
        torch.testing.assert_close(network(x), expected, rtol=1e-5, atol=1e-5)
        assert all(part.cached_form is not None for part in stored_matrices(network))
    assert all(part.cached_form is None for part in structured_parts(network).values())
    torch.testing.assert_close(network(x), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(fuse(network)(x), expected, rtol=1e-5, atol=1e-5)
    assert not list(fuse(network).parameters())


def test_mixed_layers_run_in_onnxruntime(name: str) -> None:
    spec = mixed(name)
    network = trained(spec)
    session = onnxruntime.InferenceSession(
        export(network, spec), providers=["CPUExecutionProvider"]
    )
    x = batch(dtype=torch.float32)
    (found,) = session.run(None, {"input": x.numpy()})
    expected = network(x).detach()
    allowed = 5e-5 * float(expected.abs().max())
    torch.testing.assert_close(torch.as_tensor(found), expected, rtol=0, atol=allowed)


# Dynamo itself makes an instance of every autograd.Function that it traces.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize("stack", ["mlp", "highway, normalised"])
def test_mixed_layers_are_compiled_whole(stack: str) -> None:
    network = trained(mixed(stack)).double()
    torch.compiler.reset()
    compiled = torch.compile(network, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(batch()), network(batch()), rtol=0, atol=1e-12)
    torch.compiler.reset()


def test_blocks_of_a_resnet_have_two_layers_each() -> None:
    layers = (LowRank(d=1), LowRankDiagonal(d=2), Dense(), HouseholderSvd(m1=2, m2=3, r=0.5))
    spec = ModelSpec(
        architecture=Resnet(hidden_size=8, blocks=2),
        parametrization=PerLayer(layers=layers),
        signature=LAST,
    )
    network = trained(spec).double()
    dense, _ = fold(network, spec)
    torch.testing.assert_close(network(batch()), dense(batch()), rtol=1e-9, atol=1e-10)


def test_an_answer_after_every_step_and_a_state_to_go_on_from() -> None:
    spec = mixed("lstm").model_copy(update={"signature": EVERY})
    network = trained(spec).double()
    x = batch()
    whole = network(x)
    first, state = network.step(x[:, :2], ())
    second, _ = network.step(x[:, 2:], state)
    torch.testing.assert_close(torch.cat((first, second), dim=1), whole, rtol=1e-9, atol=1e-10)


def test_a_stack_whose_layers_have_one_form_runs_in_the_kernel_others_in_torch() -> None:
    one_form = PerLayer(layers=(PackedRotations(count=1), Dense(), HouseholderSvd(m1=8, m2=8)))
    same_rank = PerLayer(layers=(LowRank(d=2), LowRank(d=2, weight_norm=True), LowRank(d=2)))
    for name in ("mlp", "highway"):
        kernels = mixed(name, PerLayer(layers=(Dense(),) * 3)).build(seed=0).backends()
        for parametrization in (one_form, same_rank):
            assert mixed(name, parametrization).build(seed=0).backends() == kernels
        assert mixed(name).build(seed=0).backends() == ("torch",)
    recurrent = mixed("gru, before").build(seed=0)
    alone = ModelSpec(
        architecture=MIXED["gru, before"],  # pyright: ignore[reportArgumentType] -- one of the union
        parametrization=LowRank(d=2),
        signature=LAST,
    )
    assert recurrent.backends() == alone.build(seed=0).backends()


def test_input_matrices_are_stored_as_their_layer_is() -> None:
    spec = mixed("rnn, all inputs", PerLayer(layers=(LowRank(d=1), LowRank(d=2), Dense())))
    shapes = spec.tensor_shapes()
    assert shapes["inputs.0.linear.left"] == (1, 8, 1)
    assert shapes["inputs.1.linear.left"] == (1, 8, 2)
    assert shapes["inputs.2.linear.weight"] == (1, 8, 8)
    assert [slot.layer for slot in spec.architecture.slots(LAST).values()] == [0, 0, 1, 2]


def test_spectral_margin_is_that_of_the_layers() -> None:
    layers = (PackedRotations(count=1), HouseholderSvd(m1=2, m2=2, r=0.5), Dense())
    network = trained(mixed("rnn", PerLayer(layers=layers)))
    alone = [
        torch.linalg.svdvals(m.dense_weight().detach()[0].double())
        for m in main_part(network).members
    ]
    expected = max(float((values - 1).abs().max()) for values in alone)
    assert spectral_margin(network) == pytest.approx(expected, rel=1e-5)


def test_speed_follows_from_the_shapes_and_options_of_all_layers() -> None:
    def key(*layers: Family) -> str:
        return mixed("rnn", PerLayer.model_validate({"layers": layers})).shape_key()

    keys = {
        key(HouseholderSvd(m1=2, m2=2), LowRank(d=2), Dense()),
        key(HouseholderSvd(m1=2, m2=2, bound="clip"), LowRank(d=2), Dense()),
        key(HouseholderSvd(m1=2, m2=2), LowRank(d=3), Dense()),
        key(LowRank(d=2), HouseholderSvd(m1=2, m2=2), Dense()),
    }
    assert len(keys) == 4
    assert key(HouseholderSvd(m1=2, m2=2, r=0.3), LowRank(d=2), Dense()) in keys


def test_family_is_that_of_all_layers_or_none() -> None:
    assert PerLayer(layers=(LowRank(d=1), LowRank(d=2))).family == "low_rank"
    assert PerLayer(layers=(LowRank(d=1), Dense())).family == "per_layer"
    assert LowRank(d=1).family == "low_rank"


def test_misfits_are_refused_with_their_layer() -> None:
    short = PerLayer(layers=(LowRank(d=1), LowRank(d=2)))
    with pytest.raises(SlotError, match=r"^rnn\.recurrent: per_layer: 2 members do not fit 3 lay"):
        mixed("rnn", short).check()
    with pytest.raises(SlotError, match="2 members do not fit 3 layers"):
        mixed("rnn, all inputs", short).parameter_count()
    large = PerLayer(layers=(LowRank(d=1), LowRank(d=9), Dense()))
    with pytest.raises(SlotError, match=r"per_layer: layer 1: low_rank: d = 9 .* 1 to 8"):
        mixed("lstm", large).check()
    outside = Slot(out_features=3, in_features=3, auxiliary=True, layer=2)
    with pytest.raises(SlotError, match="2 members do not reach to layer 2"):
        short.for_slot(outside)
    urnn = {"kind": "urnn", "hidden_size": 6, "layers": 2}
    misfit = {"architecture": urnn, "parametrization": short, "signature": LAST}
    assert not admitted(ModelSpec.model_validate(misfit))


def test_a_document_holds_members_of_families_alone() -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(AnyParametrization)
    assert adapter.validate_json(KINDS.model_dump_json()) == KINDS
    for layers in ([], [{"kind": "per_layer", "layers": [{"kind": "dense"}]}]):
        with pytest.raises(ValidationError):
            adapter.validate_python({"kind": "per_layer", "layers": layers})


def layered() -> tuple[LayeredForm, Tensor]:
    """Stacks of 2 matrices 5 x 5, tied, plain and with a diagonal, and all as plain ones."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    parts: list[Form] = [
        LowRankForm(random(2, 5, 3), random(1, 3, 5)),
        DenseForm(random(2, 5, 5)),
        LowRankForm(random(2, 5, 1), random(2, 1, 5), random(2, 5)),
    ]
    whole = joined(parts, gates=2)
    assert isinstance(whole, LayeredForm)
    identity = torch.eye(5, dtype=torch.float64)
    plain = [row.t() for part in parts for row in part.matmul(identity)]
    return whole, torch.stack(plain)


def test_stacks_of_several_forms_multiply_as_plain_ones() -> None:
    whole, plain = layered()
    states, addends = torch.randn(6, 7, 5).double(), torch.randn(3, 7, 30).double()
    dense = DenseForm(plain)
    for arranged, expected in zip(whole.addends(addends), dense.addends(addends), strict=True):
        torch.testing.assert_close(
            whole.matmul(states[0], arranged), dense.matmul(states[0], expected)
        )
    torch.testing.assert_close(whole.matmul(states[0]), dense.matmul(states[0]))
    torch.testing.assert_close(
        whole.matmul_each(states, states.flip(0)), dense.matmul_each(states, states.flip(0))
    )
    mask = (torch.rand(6, 7, 5) > 0.3).double()
    torch.testing.assert_close(
        MaskedForm(whole, mask).matmul(states[0]), MaskedForm(dense, mask).matmul(states[0])
    )


def test_parts_of_stacks_of_several_forms_are_the_matrices_there() -> None:
    whole, plain = layered()
    state = torch.randn(4, 5).double()

    def assert_are(part: Form, start: int, stop: int) -> None:
        expected = DenseForm(plain[start:stop]).matmul(state)
        torch.testing.assert_close(part.matmul(state), expected)

    for start, stop in _ranges(6):
        assert_are(whole.select(start, stop), start, stop)
    for size in (1, 2, 4, 6):
        for place, part in enumerate(whole.split(size)):
            assert_are(part, place * size, min((place + 1) * size, 6))
    assert [type(part) for part in whole.split(2)] == [type(layer) for layer in whole.layers]


def _ranges(count: int) -> Iterator[tuple[int, int]]:
    for start in range(count):
        for stop in range(start + 1, count + 1):
            yield start, stop
