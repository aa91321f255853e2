import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from models.errors import ConversionError
from models.graphs.fits import (
    CHOICES,
    AnyChoice,
    Corrected,
    Dense,
    LayerFitter,
    LowRank,
    local_error,
    statistics_of,
)
from models.graphs.layers import Layer, find_layers
from tests.models.graphs.layer_graphs import GRAPHS

DOCUMENTS: TypeAdapter[AnyChoice] = TypeAdapter(AnyChoice)


def layer_of(name: str) -> Layer:
    return find_layers(GRAPHS[name]().model())[0]


@pytest.mark.parametrize("name", GRAPHS)
def test_what_is_offered_can_be_stored_and_read_back_as_json(name: str) -> None:
    layer = layer_of(name)
    offered = [choice for kind in CHOICES for choice in kind.offers(layer)]
    assert Dense() in offered
    assert len(set(offered)) == len(offered)
    for choice in offered:
        assert choice.refusal(layer) is None
        assert DOCUMENTS.validate_json(DOCUMENTS.dump_json(choice)) == choice
        assert choice.bytes(layer) > 0


def test_bits_alone_are_offered_where_structure_is_not_allowed() -> None:
    for name in ("grouped convolution", "batched matmul", "weights at the left"):
        layer = layer_of(name)
        kinds = {type(choice) for kind in CHOICES for choice in kind.offers(layer)}
        assert kinds == {Dense}
    layer = layer_of("quantized already")
    assert [choice for kind in CHOICES for choice in kind.offers(layer)] == [Dense()]


def test_factors_are_offered_to_be_run_where_they_may() -> None:
    runs = {
        name: any(choice.run for choice in LowRank.offers(layer_of(name)))
        for name in ("matmul", "convolution", "shared", "lstm", "embedding")
    }
    assert runs == {
        "matmul": True,
        "convolution": True,
        "shared": False,
        "lstm": False,
        "embedding": False,
    }


@pytest.mark.parametrize(
    ("name", "choice", "allowed"),
    [
        ("matmul", LowRank(rank=34), "1..33"),
        ("matmul", Corrected(bits=2, rank=34), "1..33"),
        ("grouped convolution", LowRank(rank=2), "kind dense"),
        ("lstm", LowRank(rank=2, run=True), "run false"),
        ("shared", LowRank(rank=2, run=True), "run false"),
        ("quantized already", Dense(bits=4), "32 bits"),
        ("quantized already", LowRank(rank=2), "kind dense"),
    ],
)
def test_a_choice_that_cannot_be_is_refused(name: str, choice: AnyChoice, allowed: str) -> None:
    layer = layer_of(name)
    with pytest.raises(ConversionError, match=layer.operator) as caught:
        LayerFitter(layer).fit(choice)
    assert allowed in str(caught.value)


@pytest.mark.parametrize("given", [{"kind": "dense", "bits": 5}, {"kind": "low_rank", "rank": 0}])
def test_documents_outside_of_the_ranges_are_refused(given: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        DOCUMENTS.validate_python(given)


def test_bytes_are_packed_numbers_and_scales() -> None:
    layer = layer_of("matmul")
    assert (layer.rows, layer.columns) == (33, 37)
    assert Dense().bytes(layer) == 33 * 37 * 4
    assert Dense(bits=8).bytes(layer) == 33 * 37 + 2 * 33
    assert Dense(bits=4).bytes(layer) == 611 + 2 * 33
    assert Dense(bits=3).bytes(layer) == 4 * 123 + 2 * 33
    assert Dense(bits=2).bytes(layer) == 306 + 2 * 33
    assert LowRank(rank=5).bytes(layer) == 4 * 5 * 70
    assert LowRank(rank=5, bits=8).bytes(layer) == 5 * 70 + 2 * 10
    assert Corrected(bits=2, rank=3).bytes(layer) == 306 + 66 + 3 * 70 + 2 * 6


def test_halves_take_two_bytes() -> None:
    layer = layer_of("float16")
    assert Dense().bytes(layer) == 33 * 37 * 2
    assert LowRank(rank=5).bytes(layer) == 2 * 5 * 70
    fit = LayerFitter(layer).fit(LowRank(rank=5))
    assert fit.bytes == 2 * 5 * 70


def test_blocks_that_do_not_come_out_even_are_whole_rows() -> None:
    layer = layer_of("matmul")
    assert Dense(bits=4, group=32).bytes(layer) == Dense(bits=4).bytes(layer)
    assert Dense(bits=4, group=1).bytes(layer) == 611 + 2 * 33 * 37


def test_multiply_adds_shrink_where_factors_run() -> None:
    layer = layer_of("matmul")
    assert Dense(bits=4).multiply_adds(layer) == 33 * 37
    assert LowRank(rank=5).multiply_adds(layer) == 33 * 37
    assert LowRank(rank=5, run=True).multiply_adds(layer) == 5 * 70
    both = layer_of("lstm in both directions")
    assert Dense().multiply_adds(both) == 2 * 76 * 17


@pytest.mark.parametrize("name", ["matmul", "lstm in both directions", "convolution", "embedding"])
def test_errors_are_those_of_the_stored_numbers(name: str) -> None:
    small = GRAPHS[name]()
    model = small.model()
    (layer, *_) = find_layers(model)
    known = statistics_of(model, [layer], small.feeds())[layer.name]
    fitter = LayerFitter(layer, known)
    for choice in (Dense(bits=3), LowRank(rank=4, bits=8), Corrected(bits=2, rank=3)):
        fit = fitter.fit(choice)
        assert fit.error == pytest.approx(local_error(layer, known, fit.matrices(layer)), rel=1e-4)
        assert 0 < fit.error < 1
    assert fitter.fit(Dense()).error == 0
    assert np.array_equal(fitter.fit(Dense()).matrices(layer), layer.matrices)


@pytest.mark.parametrize("name", ["matmul", "lstm", "convolution"])
def test_more_rank_and_more_bits_lose_less(name: str) -> None:
    small = GRAPHS[name]()
    model = small.model()
    (layer, *_) = find_layers(model)
    fitter = LayerFitter(layer, statistics_of(model, [layer], small.feeds())[layer.name])
    by_rank = [fitter.fit(LowRank(rank=rank)).error for rank in range(1, 17)]
    assert by_rank == sorted(by_rank, reverse=True)
    by_bits = [fitter.fit(LowRank(rank=9, bits=bits)).error for bits in (32, 8, 4, 3)]
    assert by_bits == sorted(by_bits)
    corrected = [fitter.fit(Corrected(bits=2, rank=rank)).error for rank in (1, 4, 9)]
    assert corrected == sorted(corrected, reverse=True)
    assert corrected[0] < fitter.fit(Dense(bits=2)).error


def test_directions_are_fitted_each_by_itself() -> None:
    small = GRAPHS["lstm in both directions"]()
    model = small.model()
    (layer, _) = find_layers(model)
    known = statistics_of(model, [layer], small.feeds())[layer.name]
    fit = LayerFitter(layer, known).fit(LowRank(rank=6))
    made = fit.matrices(layer)
    assert made.shape == layer.matrices.shape
    assert [np.linalg.matrix_rank(matrix, tol=1e-4) for matrix in made] == [6, 6]
    assert not np.allclose(made[0], made[1])
