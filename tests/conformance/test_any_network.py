"""Every choice for every way in which an operator reads a weight: files, bytes and answers."""

from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from models.graphs.fits import (
    CHOICES,
    AnyChoice,
    Corrected,
    Dense,
    Fit,
    LayerFitter,
    LowRank,
    statistics_of,
)
from models.graphs.layers import ROLES, Layer, find_layers
from models.graphs.sessions import GraphSession
from models.graphs.writing import predicted_bytes, written
from tests.models.graphs.layer_graphs import GRAPHS, OPSETS, Array, Small


def _offered(layer: Layer) -> list[AnyChoice]:
    """One of each kind and bits, of odd ranks, in blocks and rows in turn."""
    found: dict[tuple[object, ...], AnyChoice] = {}
    for kind in CHOICES:
        for choice in kind.offers(layer):
            found.setdefault((kind, choice.bits, choice.group > 0, choice.runs_factors), choice)
    return list(found.values())


@cache
def _fitters(name: str) -> tuple[list[Layer], dict[str, LayerFitter]]:
    """The layers of a graph, whatever its operator set, and what has been fitted to them so far."""
    small = GRAPHS[name]()
    model = small.model()
    layers = find_layers(model)
    statistics = statistics_of(model, layers, small.feeds())
    return layers, {layer.name: LayerFitter(layer, statistics[layer.name]) for layer in layers}


def _replaced(model: onnx.ModelProto, layers: list[Layer], fits: Mapping[str, Fit]) -> bytes:
    """The model with the matrices of the fits as its weights: what the file has to compute."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    places = {tensor.name: tensor for tensor in made.graph.initializer}
    for layer in layers:
        if layer.name in fits:
            value = layer.role.arrangement.restored(fits[layer.name].matrices(layer))
            tensor = numpy_helper.from_array(value.astype(layer.element), layer.weight)
            places[layer.weight].CopyFrom(tensor)
    return made.SerializeToString()


def _answers(content: bytes, small: Small) -> list[dict[str, Array]]:
    session = GraphSession(content)
    return [session.run(feed) for feed in small.feeds(2, seed=5)]


def _difference(wanted: list[dict[str, Array]], found: list[dict[str, Array]]) -> float:
    """The largest, as a share of the largest number."""
    assert [list(row) for row in wanted] == [list(row) for row in found]
    pairs = [
        (row[name], other[name]) for row, other in zip(wanted, found, strict=True) for name in row
    ]
    assert all(one.shape == other.shape and one.dtype == other.dtype for one, other in pairs)
    lost = max(np.abs(one.astype(float) - other.astype(float)).max() for one, other in pairs)
    return float(lost / max(np.abs(one.astype(float)).max() for one, _ in pairs))


def _node_types(content: bytes, folder: Path) -> Counter[str]:
    path = folder / "optimized.onnx"
    GraphSession(content, optimized_path=path)
    return Counter(node.op_type for node in onnx.load(path).graph.node)


def _bound(small: Small) -> float:
    """Halves are computed as floats or as halves, by what was fused."""
    return 2e-3 if small.element == onnx.TensorProto.FLOAT16 else 1e-5


@pytest.fixture(params=GRAPHS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def small(name: str) -> Small:
    return GRAPHS[name]()


def test_every_role_has_a_graph() -> None:
    found = {layer.role.kind for make in GRAPHS.values() for layer in find_layers(make().model())}
    assert found == {role.kind for role in ROLES}


@pytest.mark.parametrize("opset", OPSETS)
def test_a_file_of_each_choice_computes_what_was_fitted(
    name: str, small: Small, opset: int
) -> None:
    model = small.model(opset)
    layers, fitters = _fitters(name)
    for layer in layers:
        for choice in _offered(layer):
            fits = {layer.name: fitters[layer.name].fit(choice)}
            made = written(model, layers, fits)
            onnx.checker.check_model(made, full_check=True)
            wanted = _answers(_replaced(model, layers, {} if choice.unchanged else fits), small)
            found = _answers(made.SerializeToString(), small)
            assert _difference(wanted, found) < _bound(small), choice


def test_full_rank_in_32_bits_changes_nothing(name: str, small: Small) -> None:
    model = small.model()
    layers, fitters = _fitters(name)
    wanted = _answers(model.SerializeToString(), small)
    for layer in (layer for layer in layers if layer.structured):
        for run in (False, True) if layer.runs else (False,):
            choice = LowRank(rank=min(layer.rows, layer.columns), run=run)
            fit = fitters[layer.name].fit(choice)
            assert fit.error < (1e-5 if layer.element == "float16" else 1e-10)
            made = written(model, layers, {layer.name: fit})
            found = _answers(made.SerializeToString(), small)
            assert _difference(wanted, found) < _bound(small)


def test_eight_bits_are_near(name: str, small: Small) -> None:
    model = small.model()
    layers, fitters = _fitters(name)
    fits = {
        layer: fitter.fit(Dense(bits=8))
        for layer, fitter in fitters.items()
        if not fitter.layer.quantized
    }
    wanted = _answers(model.SerializeToString(), small)
    found = _answers(written(model, layers, fits).SerializeToString(), small)
    assert 0 <= _difference(wanted, found) < 0.02


def test_bytes_are_known_before_and_after(name: str, small: Small) -> None:
    model = small.model()
    layers, fitters = _fitters(name)
    for layer in layers:
        for choice in _offered(layer):
            fit = fitters[layer.name].fit(choice)
            if not choice.unchanged:
                assert fit.bytes == choice.bytes(layer)
            real = written(model, layers, {layer.name: fit}).ByteSize()
            bound = 0.02 * real + 512
            assert abs(predicted_bytes(model, layers, {layer.name: choice}) - real) < bound, choice


def test_the_same_nodes_run_as_before(name: str, small: Small, tmp_path: Path) -> None:
    model = small.model()
    layers, fitters = _fitters(name)
    wanted = _node_types(model.SerializeToString(), tmp_path)
    for layer in layers:
        for choice in _offered(layer):
            made = written(model, layers, {layer.name: fitters[layer.name].fit(choice)})
            found = _node_types(made.SerializeToString(), tmp_path)
            assert (found == wanted) != choice.runs_factors, choice


def test_interfaces_and_metadata_are_kept(name: str, small: Small) -> None:
    model = small.model()
    layers, fitters = _fitters(name)
    fits = {layer: fitter.fit(_offered(fitter.layer)[-1]) for layer, fitter in fitters.items()}
    made = written(model, layers, fits, metadata={"trial": "7"})
    assert list(made.graph.input) == list(model.graph.input)
    assert list(made.graph.output) == list(model.graph.output)
    assert (made.producer_name, made.opset_import) == (model.producer_name, model.opset_import)
    metadata = {entry.key: entry.value for entry in made.metadata_props}
    assert metadata["labels"] == "a,b"
    assert metadata["reflectory.trial"] == "7"
    assert all(
        name in metadata["reflectory.choices"]
        for name, fit in fits.items()
        if not fit.choice.unchanged
    )


def test_fewer_bits_lose_more(name: str) -> None:
    layers, fitters = _fitters(name)
    for layer in layers:
        errors = [fitters[layer.name].fit(choice).error for choice in _bits(layer)]
        assert all(0 <= error < 1 for error in errors)
        assert errors == sorted(errors)


def _bits(layer: Layer) -> list[AnyChoice]:
    few: tuple[AnyChoice, ...] = (Dense(bits=8), Dense(bits=4), Dense(bits=3))
    return [Dense()] if layer.quantized else [Dense(), *few]


def test_a_correction_helps_what_is_rounded_without_compensation(name: str) -> None:
    layers, fitters = _fitters(name)
    for layer in (layer for layer in layers if layer.structured):
        fitter = fitters[layer.name]
        alone = fitter.fit(Dense(bits=3), compensated=False).error
        rank = max(1, min(layer.rows, layer.columns) // 3)
        assert fitter.fit(Corrected(bits=3, rank=rank), compensated=False).error < alone
