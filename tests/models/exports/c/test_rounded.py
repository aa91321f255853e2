"""Models of 8 and of 4 bits: their files hold their integers."""

import itertools
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch

from models.errors import RoundingError
from models.exports.c.export import export, sizes
from models.exports.c.tables import BLOCK
from models.exports.c.verify import answers, build, verify
from models.model import ModelSpec, NumberBits
from models.network import Network
from models.quantization import Bits, round_
from tests.c_check.builds import Build, builds, check
from tests.conformance.model_specs import trained
from tests.models.exports.c.test_export import CELLS, FACTORS, spec_of

FEW: tuple[Bits, ...] = (8, 4)
URNN = {"kind": "urnn"}
MODELS = [
    spec_of({"kind": "gru", "reset": "after"}),
    spec_of({"kind": "gru", "reset": "before"}, {"kind": "low_rank", "d": 3, "tied": True}),
    spec_of({"kind": "gru"}, {"kind": "low_rank", "d": 3, "weight_norm": True}),
    spec_of({"kind": "lstm", "peephole": True}, {"kind": "low_rank_diagonal", "d": 3}, size=21),
    spec_of({"kind": "rnn", "activation": "tanh"}, {"kind": "householder", "m": 3}),
    spec_of({"kind": "gru"}, {"kind": "householder_svd", "m1": 3, "m2": 4}, size=21),
    spec_of({"kind": "gru"}, {"kind": "packed_rotations", "count": 3}),
    spec_of({"kind": "rnn"}, {"kind": "rotation_svd", "count_u": 3, "count_v": 21}, size=21),
    spec_of(URNN),
    spec_of(URNN, {"kind": "unitary_fft"}),
    spec_of({"kind": "mlp"}, {"kind": "low_rank", "d": 3}, size=21),
    # The input matrix has fewer columns than rows, so that these have the scales.
    spec_of({"kind": "mlp"}, {"kind": "low_rank", "d": 3}, size=25, input_size=3),
    spec_of({"kind": "highway", "stack": "batch_normalised"}, {"kind": "low_rank", "d": 3}),
    spec_of({"kind": "gru"}, {"kind": "low_rank", "d": 3, "tied": True}, vocabulary=9),
]


def of_bits(spec: ModelSpec, bits: NumberBits) -> ModelSpec:
    return spec.model_copy(update={"bits": bits})


@pytest.mark.parametrize(
    ("spec", "bits"),
    list(itertools.product(MODELS, FEW)),
    ids=lambda value: value.architecture.kind if isinstance(value, ModelSpec) else value,
)
def test_integers_compute_what_the_rounded_model_does(spec: ModelSpec, bits: Bits) -> None:
    few = of_bits(spec, bits)
    network = trained(few)
    file = export(network, few)
    verify(file, network, few)
    assert sizes(few).tables_bytes == file.tables_bytes < sizes(spec).tables_bytes


@pytest.mark.nightly
@pytest.mark.parametrize("factors", [*FACTORS, {"kind": "dense"}], ids=str)
@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_integers_of_every_cell_and_factor(cell: dict[str, Any], factors: dict[str, Any]) -> None:
    for size, bits in itertools.product((20, 21), FEW):
        few = of_bits(spec_of(cell, factors, size=size), bits)
        network = trained(few)
        file = export(network, few)
        verify(file, network, few)
        assert sizes(few).tables_bytes == file.tables_bytes


@pytest.mark.parametrize("bits", FEW)
def test_levels_give_equal_bits(bits: Bits) -> None:
    tried = [one for one in builds() if one.compiler == "gcc"] or [Build("cc", ("-O0",))]
    check(of_bits(MODELS[1], bits), tried)
    check(of_bits(MODELS[6], bits), tried)


@pytest.mark.nightly
@pytest.mark.parametrize("bits", FEW)
def test_all_builds_give_equal_bits(bits: Bits) -> None:
    for spec in MODELS:
        check(of_bits(spec, bits), builds())


@pytest.mark.parametrize("spec", MODELS[:10], ids=lambda spec: spec.parametrization.kind)
@pytest.mark.parametrize("bits", FEW)
def test_tables_take_what_the_checkpoint_holds(spec: ModelSpec, bits: Bits) -> None:
    """Integers and scales, and beside them what is of 32 bits anyway."""
    few = of_bits(spec, bits)
    network = few.build(seed=0)
    layouts = few.layouts()
    held = sum(layout.size_bytes for layout in layouts.values())
    kept = sum(t.numel() for name, t in network.state_dict().items() if name not in layouts)
    # A reflector has its own factor; odd columns of 4 bits end in half a byte; Fourier transforms
    # have roots and an order; rows that are normalised have their lengths.
    size, count = few.architecture.hidden_size, len(layouts)
    scales = sum(t.shape[-2] for t in network.state_dict().values() if t.ndim > 1)
    assert sizes(few).tables_bytes <= held + 4 * kept + 10 * size + 8 * scales + BLOCK * count


@pytest.mark.parametrize("bits", FEW)
def test_tables_take_as_many_bits_as_they_should(bits: Bits) -> None:
    """Of matrices of 128 x 128 nearly all."""
    for factors in ({"kind": "dense"}, {"kind": "low_rank", "d": 16, "tied": True}):
        spec = spec_of({"kind": "gru", "reset": "after"}, factors, size=128)
        ratio = sizes(of_bits(spec, bits)).tables_bytes / sizes(spec).tables_bytes
        assert bits / 32 < ratio < bits / 32 + 0.06


def test_angles_have_twice_as_many_bits() -> None:
    spec = spec_of({"kind": "gru", "reset": "after"}, FACTORS[6], size=128)
    more = spec.model_copy(
        update={"parametrization": spec.parametrization.model_copy(update={"count": 13})}
    )
    added = {
        bits: sizes(of_bits(more, bits)).tables_bytes - sizes(of_bits(spec, bits)).tables_bytes
        for bits in (32, *FEW)
    }
    angles = 3 * 10 * 64
    assert added == {32: 8 * angles, 8: 2 * angles, 4: angles}


def test_a_network_that_is_not_rounded_is_refused_by_name() -> None:
    few = of_bits(MODELS[0], 8)
    with pytest.raises(RoundingError, match="weight is not rounded to 8 bits"):
        export(few.unrounded.build(seed=0), few)


def test_orthogonal_matrices_stay_so_however_they_are_rounded() -> None:
    """A state that is only ever turned keeps its length over a thousand steps."""
    for parametrization, bits in itertools.product(
        ({"kind": "householder", "m": 4}, {"kind": "packed_rotations", "count": 3}), FEW
    ):
        fields: dict[str, Any] = {"kind": "rnn", "activation": "identity"}
        spec = of_bits(spec_of(fields, parametrization, output_size=20), bits)
        network = spec.build(seed=0).eval()
        with torch.no_grad():
            network.get_submodule("readout").get_parameter("weight").copy_(torch.eye(20))
            network.get_submodule("inputs").get_submodule("0").get_parameter("weight").zero_()
            start = network.get_parameter("initial_state")
            start.copy_(torch.ones_like(start))
        round_(network, bits)
        assert_length_is_kept(network, spec)


def assert_length_is_kept(network: Network, spec: ModelSpec) -> None:
    with TemporaryDirectory() as folder:
        program = build(export(network, spec), spec, Path(folder))
        found = answers([str(program)], spec, torch.zeros(1, 1000, 3), steps=1000)
    with torch.no_grad():
        expected = network.get_submodule("readout")(network.get_parameter("initial_state"))
    assert abs(float(found.norm() / expected.norm()) - 1) < 1e-4
