"""Matrices as whole numbers of 8 and of 4 bits."""

import itertools
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import pytest
import torch
from torch import nn

from models.exports.c.export import export, sizes
from models.exports.c.verify import answers, build, verify
from models.linear import Affine
from models.model import ModelSpec
from models.network import Network
from models.parametrizations.dense import ComplexDenseLinear, DenseLinear
from models.parametrizations.parts.low_rank_factors import LowRankLinear
from models.parametrizations.parts.staircase import Staircase
from tests.c_check.builds import LEVELS
from tests.c_check.rounding import rounding
from tests.conformance.model_specs import trained
from tests.models.exports.c.test_export import spec_of

Bits = Literal[8, 4]

MODELS = [
    spec_of({"kind": "gru", "reset": "after"}),
    spec_of({"kind": "gru", "reset": "before"}, {"kind": "low_rank", "d": 3, "tied": True}),
    spec_of({"kind": "lstm", "peephole": True}, {"kind": "low_rank_diagonal", "d": 3}, size=21),
    spec_of({"kind": "rnn", "activation": "tanh"}, {"kind": "householder", "m": 3}),
    spec_of({"kind": "gru"}, {"kind": "householder_svd", "m1": 3, "m2": 4}, size=21),
    spec_of({"kind": "gru"}, {"kind": "packed_rotations", "count": 3}),
    spec_of({"kind": "urnn"}),
    spec_of({"kind": "mlp"}, {"kind": "low_rank", "d": 3}, size=21),
    spec_of({"kind": "highway", "stack": "batch_normalised"}, {"kind": "low_rank", "d": 3}),
    spec_of({"kind": "gru"}, {"kind": "low_rank", "d": 3, "tied": True}, vocabulary=9),
]


def rounded_in_place(network: Network, bits: Bits) -> Network:
    """The model whose parameters are what the whole numbers say."""
    rounded = rounding(bits)

    def put(value: torch.Tensor) -> None:
        found = rounded(value.double())
        value.copy_(found.whole * found.scale.unsqueeze(-1))

    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, Affine | DenseLinear | ComplexDenseLinear):
                assert isinstance(module.weight, nn.Parameter)
                put(module.weight)
            if isinstance(module, LowRankLinear):
                assert isinstance(module.left, nn.Parameter)
                assert isinstance(module.right, nn.Parameter)
                put(module.left)
                put(module.right)
            if isinstance(module, Staircase):
                rows = module.rows()
                put(rows)
                module.entries.copy_(rows.flatten(1)[:, module._positions])
        embedding = getattr(network, "embedding", None)
        if embedding is not None:
            put(embedding.weight)
    return network


@pytest.mark.parametrize(
    ("spec", "bits"),
    list(itertools.product(MODELS, (8, 4))),
    ids=lambda value: value.architecture.kind if isinstance(value, ModelSpec) else value,
)
def test_whole_numbers_compute_what_the_rounded_model_does(spec: ModelSpec, bits: Bits) -> None:
    network = rounded_in_place(trained(spec), bits)
    file = export(network, spec, rounding=rounding(bits))
    verify(file, network, spec)
    assert sizes(spec, rounding=rounding(bits)).tables_bytes == file.tables_bytes
    assert file.tables_bytes < sizes(spec).tables_bytes


@pytest.mark.parametrize("bits", [8, 4])
def test_tables_take_as_many_bits_as_they_should(bits: Bits) -> None:
    """Of a dense matrix of 64 x 64 by three gates nearly all."""
    spec = spec_of({"kind": "gru", "reset": "after"}, size=64)
    ratio = sizes(spec, rounding=rounding(bits)).tables_bytes / sizes(spec).tables_bytes
    assert bits / 32 < ratio < bits / 32 + 0.08


def test_reflectors_stay_orthogonal_however_they_are_rounded() -> None:
    """A state that is only ever turned keeps its length over a thousand steps."""
    parametrization = {"kind": "householder", "m": 4}
    fields: dict[str, Any] = {"kind": "rnn", "activation": "identity"}
    spec = spec_of(fields, parametrization, output_size=20)
    network = spec.build(seed=0).eval()
    with torch.no_grad():
        readout = network.get_submodule("readout")
        readout.get_parameter("weight").copy_(torch.eye(20))
        network.get_submodule("inputs").get_submodule("0").get_parameter("weight").zero_()
        start = network.get_parameter("initial_state")
        start.copy_(torch.ones_like(start))
    for bits in (8, 4):
        network = rounded_in_place(network, bits)
        assert_length_is_kept(network, spec, bits)


def assert_length_is_kept(network: Network, spec: ModelSpec, bits: Bits) -> None:
    with TemporaryDirectory() as folder:
        file = export(network, spec, rounding=rounding(bits))
        program = build(file, spec, Path(folder))
        found = answers([str(program)], spec, torch.zeros(1, 1000, 3), steps=1000)
    assert abs(float(found.norm()) / 20**0.5 - 1) < 1e-4


@pytest.mark.nightly
@pytest.mark.parametrize("bits", [8, 4])
def test_sanitizers_find_nothing(tmp_path: Path, bits: Bits) -> None:
    for spec in MODELS:
        network = trained(spec)
        file = export(network, spec, rounding=rounding(bits))
        build(file, spec, tmp_path, flags=LEVELS[-1])
        verify(file, rounded_in_place(network, bits), spec)
