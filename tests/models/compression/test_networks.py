"""Whole networks converted and folded back: all else is copied, and reports tell the truth."""

import copy
import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from models.architectures import (
    ARCHITECTURES,
    AnyArchitecture,
    Gru,
    Highway,
    Lstm,
    Mlp,
    Resnet,
    Rnn,
    Urnn,
)
from models.checkpoint import load, save_bytes
from models.compression import FITS, convert, convert_weight, fold
from models.compression.parts import structured_parts
from models.errors import ConversionError, SlotError
from models.math.complex_matrices import real_form
from models.model import ModelSpec
from models.network import Network
from models.parametrizations import (
    PARAMETRIZATIONS,
    AnyParametrization,
    Dense,
    FactorizedSvd,
    Householder,
    HouseholderSvd,
    LowRank,
    LowRankDiagonal,
    PackedRotations,
    RotationSvd,
    UnitaryFft,
    UnitaryFull,
)
from models.quantization import round_
from models.report import model_totals
from models.spec import Signature, Slot
from tests.models.compression.targets import gaussian

SIGNATURE = Signature(input_size=3, sequence_length=5, output_size=4)
TOKENS = Signature(
    input_size=3, sequence_length=5, output_size=4, vocabulary=11, output_steps="every"
)

REAL: dict[str, AnyArchitecture] = {
    "rnn": Rnn(hidden_size=8, layers=2),
    "lstm": Lstm(hidden_size=8, peephole=True),
    "gru before": Gru(hidden_size=8, layers=2),
    "gru after": Gru(hidden_size=8, reset="after", candidate_bias=True),
    "mlp": Mlp(hidden_size=8, layers=3),
    "resnet": Resnet(hidden_size=8),
    "highway": Highway(hidden_size=8),
    "highway normalised": Highway(hidden_size=8, stack="batch_normalised"),
    "lstm, all inputs": Lstm(hidden_size=8, layers=2, structured_inputs="all"),
    "mlp, all inputs": Mlp(hidden_size=8, structured_inputs="all"),
    "gru, normalised inputs": Gru(hidden_size=8, input_weight_norm=True),
}
FULL: dict[str, AnyParametrization] = {
    "householder_svd": HouseholderSvd(m1=8, m2=8, bound="free"),
    "low_rank": LowRank(d=8),
    "low_rank_diagonal": LowRankDiagonal(d=8, weight_norm=True),
    "dense": Dense(),
}
SMALL: dict[str, AnyParametrization] = {
    "factorized_svd": FactorizedSvd(margin=1.0),
    "householder": Householder(m=3),
    "householder_svd": HouseholderSvd(m1=2, m2=2, r=0.5),
    "low_rank": LowRank(d=2, tied=True),
    "low_rank_diagonal": LowRankDiagonal(d=2),
    "packed_rotations": PackedRotations(count=3),
    "rotation_svd": RotationSvd(count_u=2, count_v=2),
}


def spec_of(
    architecture: AnyArchitecture,
    parametrization: AnyParametrization | None = None,
    signature: Signature = SIGNATURE,
) -> ModelSpec:
    return ModelSpec(
        architecture=architecture, parametrization=parametrization or Dense(), signature=signature
    )


def trained(spec: ModelSpec, *, dtype: torch.dtype = torch.float64) -> Network:
    """A network whose numbers are all random, running statistics included."""
    network = spec.build(seed=0)
    generator = torch.Generator().manual_seed(1)
    for tensor in network.state_dict().values():
        tensor.add_(0.2 * torch.rand(tensor.shape, generator=generator))
    return network.to(dtype).eval()


def batch(signature: Signature = SIGNATURE, *, dtype: torch.dtype = torch.float64) -> Tensor:
    if signature.vocabulary is not None:
        return torch.randint(0, signature.vocabulary, (6, 5), generator=torch.Generator())
    return gaussian(6, 5, 3, seed=7).to(dtype)


def test_every_parametrization_has_a_conversion_or_a_sentence() -> None:
    for variant in PARAMETRIZATIONS:
        assert (variant in FITS) == (variant.no_fit is None), variant
        if variant.no_fit is not None:
            with pytest.raises(ConversionError, match=variant.no_fit):
                convert_weight(gaussian(4, 4), variant())  # pyright: ignore[reportCallIssue]
    assert set(PARAMETRIZATIONS) - set(FITS) == {UnitaryFft}


@pytest.mark.parametrize("name", ["cayley", "exponential"])
def test_a_unitary_matrix_is_fitted_exactly_and_any_other_by_its_polar_factor(name: str) -> None:
    family = UnitaryFull(orthogonal_map=name)  # pyright: ignore[reportArgumentType]
    slot = Slot(out_features=6, in_features=6, gates=2, field="complex")
    generator = torch.Generator().manual_seed(3)
    own = family.build(slot, generator=generator).double()
    found = convert_weight(own.dense_weight(), family, slot=slot)
    assert torch.allclose(found.dense_weight(), own.dense_weight(), atol=1e-9)
    real, imaginary = torch.randn(2, 2, 6, 6, generator=generator, dtype=torch.float64)
    left, _, right = torch.linalg.svd(torch.complex(real, imaginary))
    nearest = left @ right
    found = convert_weight(real_form(real, imaginary), family, slot=slot)
    # The Cayley transform stops short of a phase of pi.
    assert torch.allclose(found.dense_weight(), real_form(nearest.real, nearest.imag), atol=2e-3)


@pytest.mark.parametrize(
    ("name", "parametrization"),
    [
        (name, parametrization)
        for name, parametrization in itertools.product(REAL, FULL)
        # A diagonal needs square input matrices.
        if not (name.endswith("all inputs") and parametrization == "low_rank_diagonal")
    ],
)
def test_at_full_size_a_network_answers_as_before(name: str, parametrization: str) -> None:
    source, target = spec_of(REAL[name]), spec_of(REAL[name], FULL[parametrization])
    network = trained(source)
    if name.endswith("all inputs") and parametrization == "low_rank":
        # Auxiliary matrices are cut to a rank that saves something.
        _, report = convert(network, target)
        errors = {row.slot: row.weight_error for row in report.layers}
        main = next(iter(source.architecture.slots(SIGNATURE)))
        assert errors.pop(main) < 1e-12 < min(errors.values())
        return
    converted, report = convert(network, target, calibration=batch())
    assert report.weight_error < 1e-12
    assert report.output_error is not None
    assert report.output_error < 1e-9
    torch.testing.assert_close(converted(batch()), network(batch()), rtol=1e-9, atol=1e-9)
    assert report.parameters_after == target.parameter_count()


@pytest.mark.parametrize("parametrization", SMALL)
@pytest.mark.parametrize("name", ["rnn", "lstm", "gru before", "gru after", "mlp", "resnet"])
def test_reports_are_true_and_a_fold_computes_the_same(name: str, parametrization: str) -> None:
    target = spec_of(REAL[name], SMALL[parametrization])
    network = trained(spec_of(REAL[name]))
    converted, report = convert(network, target, calibration=batch())
    before, after = structured_parts(network), structured_parts(converted)
    lost, whole = 0.0, 0.0
    for row in report.layers:
        part = slice(row.layer * row.shape[0], (row.layer + 1) * row.shape[0])
        plain = before[row.slot].dense_weight().detach()[part]
        found = after[row.slot].dense_weight().detach()[part]
        error = float((found - plain).norm() / plain.norm())
        assert row.weight_error == pytest.approx(error, abs=1e-12)
        assert row.output_error is not None
        lost += row.parameters_after
        whole += row.parameters_before
    assert report.parameters_before - report.parameters_after == whole - lost
    totals = model_totals(target)
    assert report.parameters_after == totals.parameters
    answers = [model(batch()).detach() for model in (network, converted)]
    distance = float((answers[1] - answers[0]).norm() / answers[0].norm())
    assert report.output_error == pytest.approx(distance, abs=1e-12)
    folded, twin = fold(converted, target)
    assert twin == target.dense_twin()
    torch.testing.assert_close(folded(batch()), answers[1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("parametrization", ["low_rank", "low_rank_diagonal"])
@pytest.mark.parametrize("weight_norm", [False, True])
def test_a_normalised_highway_folds_its_middles_away(
    parametrization: str, weight_norm: bool
) -> None:
    family = SMALL[parametrization].model_copy(update={"weight_norm": weight_norm})
    spec = spec_of(REAL["highway normalised"], family)
    network = trained(spec)
    folded, _ = fold(network, spec)
    torch.testing.assert_close(folded(batch()), network(batch()), rtol=1e-9, atol=1e-9)
    assert sum(p.numel() for p in folded.parameters()) > sum(
        p.numel() for p in network.parameters()
    )


def test_a_unitary_network_folds_to_complex_matrices() -> None:
    spec = spec_of(Urnn(hidden_size=5), UnitaryFft())
    network = trained(spec)
    folded, _ = fold(network, spec)
    torch.testing.assert_close(folded(batch()), network(batch()), rtol=1e-9, atol=1e-9)
    # What a product of seven factors makes is unitary: another parametrization holds it, too.
    again, _ = convert(folded, spec_of(Urnn(hidden_size=5), UnitaryFull()))
    torch.testing.assert_close(again(batch()), network(batch()), rtol=1e-9, atol=1e-9)
    with pytest.raises(ConversionError, match="unitary_fft: no way is known"):
        convert(folded, spec_of(Urnn(hidden_size=5), UnitaryFft()))


def test_embeddings_and_answers_at_every_step_are_kept() -> None:
    source = spec_of(Gru(hidden_size=8), signature=TOKENS)
    network = trained(source, dtype=torch.float32)
    target = spec_of(Gru(hidden_size=8), LowRank(d=8), signature=TOKENS)
    converted, report = convert(network, target, calibration=batch(TOKENS))
    torch.testing.assert_close(converted(batch(TOKENS)), network(batch(TOKENS)))
    assert converted(batch(TOKENS)).dtype == torch.float32
    assert report.output_error is not None
    loaded = load(save_bytes(converted, target))
    assert torch.equal(loaded.module.eval()(batch(TOKENS)), converted(batch(TOKENS)))


def test_input_matrices_may_become_structured_and_plain_again() -> None:
    plain = spec_of(Lstm(hidden_size=8))
    network = trained(plain)
    target = spec_of(
        Lstm(hidden_size=8, structured_inputs="all"), HouseholderSvd(m1=8, m2=8, bound="free")
    )
    converted, report = convert(network, target, calibration=batch())
    torch.testing.assert_close(converted(batch()), network(batch()), rtol=1e-9, atol=1e-9)
    assert {row.slot for row in report.layers} == {"recurrent", "inputs.0.linear"}
    again, _ = convert(converted, plain)
    torch.testing.assert_close(again(batch()), network(batch()), rtol=1e-9, atol=1e-9)


def test_what_recurrent_matrices_read_is_what_output_errors_weigh() -> None:
    spec = spec_of(Rnn(hidden_size=8, activation="tanh", learned_initial_state=False))
    network = trained(spec)
    target = spec.model_copy(update={"parametrization": LowRank(d=2)})
    converted, report = convert(network, target, calibration=batch())
    states, h = [], torch.zeros(6, 8, dtype=torch.float64)
    weight = network.get_parameter("recurrent.weight").detach()[0]
    project = network.get_submodule("inputs.0")
    for step in batch().unbind(1):
        states.append(h)
        h = torch.tanh(h @ weight.mT + project(step).detach())
    seen = torch.cat(states)
    found = structured_parts(converted)["recurrent"].dense_weight().detach()[0]
    error = float((seen @ (found - weight).mT).norm() / (seen @ weight.mT).norm())
    assert report.layers[0].output_error == pytest.approx(error, abs=1e-12)
    blind, plain = convert(network, target)
    assert plain.layers[0].output_error is None
    other = structured_parts(blind)["recurrent"].dense_weight().detach()[0]
    assert error <= float((seen @ (other - weight).mT).norm() / (seen @ weight.mT).norm()) + 1e-9


def test_networks_of_rising_counts_lose_less_and_less() -> None:
    spec = spec_of(Gru(hidden_size=8))
    network, earlier, errors = trained(spec), None, []
    for m in (1, 2, 4, 6, 8):
        target = spec.model_copy(
            update={"parametrization": HouseholderSvd(m1=m, m2=m, bound="free")}
        )
        earlier, report = convert(network, target, earlier=earlier)
        errors.append(report.layers[0].gate_errors)
    for before, after in itertools.pairwise(errors):
        assert all(b <= a + 1e-12 for a, b in zip(before, after, strict=True))
    assert max(errors[-1]) < 1e-12


def test_an_earlier_network_is_left_as_it_is() -> None:
    spec = spec_of(Gru(hidden_size=8))
    small, large = (spec.model_copy(update={"parametrization": LowRank(d=d)}) for d in (2, 4))
    network = trained(spec, dtype=torch.float32)
    earlier, _ = convert(network, small)
    state = {name: tensor.clone() for name, tensor in earlier.state_dict().items()}
    convert(network, large, earlier=earlier)
    assert {tensor.dtype for tensor in earlier.state_dict().values()} == {torch.float32}
    assert all(torch.equal(state[name], each) for name, each in earlier.state_dict().items())
    x = batch(dtype=torch.float32)
    loaded = load(save_bytes(earlier, small)).module.eval()
    torch.testing.assert_close(loaded(x), earlier.eval()(x), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_converted_in_double_and_stored_in_its_own(dtype: torch.dtype) -> None:
    weight = gaussian(8, 8).to(dtype)
    linear = convert_weight(weight, HouseholderSvd(m1=8, m2=8, bound="free"))
    torch.testing.assert_close(linear.dense_weight()[0], weight.double(), rtol=0, atol=1e-12)
    network = trained(spec_of(Mlp(hidden_size=8)), dtype=dtype)
    target = spec_of(Mlp(hidden_size=8), LowRank(d=8))
    converted, report = convert(network, target)
    assert {tensor.dtype for tensor in converted.state_dict().values()} == {dtype}
    assert 0 < report.weight_error < 8 * torch.finfo(dtype).eps


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_numbers_that_are_none_are_refused_by_name(bad: float) -> None:
    weight = gaussian(3, 4, 4)
    weight[1, 2, 3] = bad
    with pytest.raises(ConversionError, match=r"enc.weight has (nan|inf) at \[1, 2, 3\] \(1 of 48"):
        convert_weight(weight, LowRank(d=1), name="enc.weight")
    network = trained(spec_of(Gru(hidden_size=4)))
    with torch.no_grad():
        network.get_parameter("inputs.0.bias")[2] = bad
    with pytest.raises(ConversionError, match=r"tensor 'inputs.0.bias' has (nan|inf) at \[2\]"):
        convert(network, spec_of(Gru(hidden_size=4), LowRank(d=1)))


def test_other_architectures_and_sizes_are_refused() -> None:
    three = Slot(out_features=4, in_features=4, gates=3)
    network = trained(spec_of(Gru(hidden_size=4)))
    for other in (Gru(hidden_size=5), Lstm(hidden_size=4), Mlp(hidden_size=4), Gru(layers=2)):
        with pytest.raises(ConversionError, match=r"the target's architecture|which the target"):
            convert(network, spec_of(other, LowRank(d=1)))
    with pytest.raises(SlotError, match="d = 9 does not fit a 4 x 4 matrix"):
        convert(network, spec_of(Gru(hidden_size=4), LowRank(d=9)))
    with pytest.raises(ConversionError, match=r"has shape \[2, 4, 4\]; allowed is \[3, 4, 4\]"):
        convert_weight(gaussian(2, 4, 4), Dense(), slot=three)


def test_every_real_architecture_is_tried() -> None:
    tried: set[Any] = {type(architecture) for architecture in REAL.values()}
    assert tried == set(ARCHITECTURES) - {Urnn}


@pytest.mark.parametrize("name", SMALL)
@torch.no_grad()
def test_a_target_of_few_bits_is_rounded_and_the_report_tells_of_that(name: str) -> None:
    source, target = spec_of(REAL["rnn"]), spec_of(REAL["rnn"], SMALL[name])
    network = trained(source, dtype=torch.float32)
    x = batch(dtype=torch.float32)
    plain, full = convert(network, target, calibration=x)
    for bits in (8, 4):
        few = target.model_copy(update={"bits": bits})
        found, report = convert(network, few, calibration=x)
        assert load(save_bytes(found, few)).spec == few
        rounded = copy.deepcopy(plain)
        round_(rounded, bits)
        assert all(map(torch.equal, found.state_dict().values(), rounded.state_dict().values()))
        assert report.spec == few
        answer, before = found(x), network(x)
        error = float((answer - before).norm() / before.norm())
        assert report.output_error == pytest.approx(error, rel=1e-5)
        pairs = zip(report.layers, full.layers, strict=True)
        assert all(one.weight_error != other.weight_error for one, other in pairs)
        # What is trained further is what it would be with 32 bits; it is reported as it is stored.
        start, told = convert(network, few, calibration=x, rounds=False)
        assert all(map(torch.equal, start.state_dict().values(), plain.state_dict().values()))
        assert told == report


def test_a_model_of_few_bits_is_folded_to_one_of_32() -> None:
    spec = spec_of(REAL["rnn"], SMALL["low_rank"]).model_copy(update={"bits": 4})
    network = spec.build(seed=3)
    dense, plain = fold(network, spec)
    assert plain.bits == 32
    x = batch(dtype=torch.float32)
    torch.testing.assert_close(dense(x), network(x))
