"""A small network as a whole: whether sums of local errors rank what is measured."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from scipy.stats import spearmanr

from models.graphs.allocation import (
    Probed,
    by_price,
    candidates,
    predicted_loss,
    prices,
    probes,
    refitted,
    sensitivities,
)
from models.graphs.fits import AnyChoice, Dense, LayerFitter, statistics_of
from models.graphs.layers import Layer, find_layers
from models.graphs.sessions import GraphSession
from models.graphs.writing import written
from tests.models.graphs.layer_graphs import Array, node, weight

SAMPLES = 48
FEATURES, CLASSES = 16, 10
Tables = dict[str, dict[AnyChoice, float]]


def _network() -> onnx.ModelProto:
    """Convolutions, a recurrent layer and products, with answers that are probabilities."""
    nodes = [
        node("Conv", "x", "c1", outputs=["h1"], pads=[1, 1]),
        node("Relu", "h1", outputs=["h2"]),
        node("Conv", "h2", "c2", outputs=["h3"], pads=[1, 1], strides=[2]),
        node("Relu", "h3", outputs=["h4"]),
        node("Transpose", "h4", outputs=["h5"], perm=[2, 0, 1]),
        node("GRU", "h5", "gw", "gr", outputs=["", "h6"], hidden_size=32),
        node("Squeeze", "h6", "axis", outputs=["h7"]),
        node("Gemm", "h7", "p1", outputs=["h8"], transB=1, alpha=2.0),
        node("Relu", "h8", outputs=["h9"]),
        node("MatMul", "h9", "p2", outputs=["h10"]),
        node("Softmax", "h10", axis=-1),
    ]
    weights = {
        "c1": weight(40, FEATURES, 3),
        "c2": 0.6 * weight(36, 40, 3),
        "gw": weight(1, 96, 36),
        "gr": weight(1, 96, 32),
        "axis": np.array([0]),
        "p1": weight(120, 32),
        "p2": 3 * weight(120, CLASSES),
    }
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", FEATURES, 20])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", CLASSES])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _feed(seed: int) -> dict[str, Array]:
    generator = np.random.default_rng(seed)
    mixing = np.random.default_rng(2).standard_normal((FEATURES, FEATURES))
    steps = generator.standard_normal((SAMPLES, FEATURES, 20)).cumsum(2) / 3
    value = np.einsum("fg,ngt->nft", mixing * np.geomspace(1, 0.1, FEATURES), steps)
    return {"x": (value / np.sqrt(FEATURES)).astype(np.float32)}


def _divergence(truth: Array, answer: Array) -> float:
    p, q = (np.clip(one.astype(np.float64), 1e-12, 1) for one in (truth, answer))
    return float((p * np.log(p / q)).sum(-1).mean())


class _Search:
    """The first steps of a search, which the tests share."""

    def __init__(self) -> None:
        self.model = _network()
        self.layers: list[Layer] = find_layers(self.model)
        known = statistics_of(self.model, self.layers, [_feed(1), _feed(2)])
        self.fitters = {one.name: LayerFitter(one, known[one.name]) for one in self.layers}
        self.feed = _feed(3)
        self.truth = self._answer(self.model)
        self.sensitivity = sensitivities(
            {
                layer.name: [self._probed(layer, probe) for probe in probes(layer)]
                for layer in self.layers
            }
        )
        offered = {layer.name: candidates(layer) for layer in self.layers}
        self.errors: Tables = {
            name: {choice: self.fitters[name].fit(choice).error for choice in choices}
            for name, choices in offered.items()
        }
        self.losses: Tables = {
            name: {choice: self.sensitivity[name] * error for choice, error in table.items()}
            for name, table in self.errors.items()
        }
        self.costs: Tables = {
            layer.name: {choice: choice.bytes(layer) for choice in offered[layer.name]}
            for layer in self.layers
        }

    def measured(self, chosen: Mapping[str, AnyChoice]) -> float:
        fits = {name: self.fitters[name].fit(choice) for name, choice in chosen.items()}
        return _divergence(self.truth, self._answer(written(self.model, self.layers, fits)))

    def _answer(self, model: onnx.ModelProto) -> Array:
        return GraphSession(model.SerializeToString()).run(self.feed)["y"]

    def _probed(self, layer: Layer, probe: AnyChoice) -> Probed:
        return Probed(self.measured({layer.name: probe}), self.fitters[layer.name].fit(probe).error)


@cache
def _search() -> _Search:
    return _Search()


def _first_trials(search: _Search) -> list[dict[str, AnyChoice]]:
    return by_price(search.losses, search.costs, prices(search.losses, search.costs))


def _drawn(search: _Search, count: int) -> list[dict[str, AnyChoice]]:
    """Each layer by a price that is up to two steps from that of the others."""
    generator = np.random.default_rng(0)
    trials = _first_trials(search)
    found: list[dict[str, AnyChoice]] = []
    for _ in range(count):
        step = generator.integers(2, len(trials) - 2)
        places = step + generator.integers(-2, 3, len(search.layers))
        rows = zip(search.layers, places, strict=True)
        found.append({layer.name: trials[place][layer.name] for layer, place in rows})
    return found


def _predicted(
    search: _Search, sensitivity: Mapping[str, float], chosen: Mapping[str, AnyChoice]
) -> float:
    return predicted_loss(
        sensitivity, {name: search.errors[name][choice] for name, choice in chosen.items()}
    )


def test_the_network_has_layers_of_all_kinds() -> None:
    kinds = [layer.role.kind for layer in _search().layers]
    assert kinds == [
        "convolution",
        "convolution",
        "recurrent_input",
        "recurrent_state",
        "product",
        "product",
    ]


def test_predictions_rank_what_is_measured_over_all_budgets() -> None:
    search = _search()
    trials = [*_first_trials(search), *_drawn(search, 24)]
    predicted = [_predicted(search, search.sensitivity, one) for one in trials]
    measured = [search.measured(one) for one in trials]
    # Its class is generic in a way that type checkers cannot see.
    rank: Any = spearmanr(predicted, measured)
    assert rank.statistic > 0.9


def test_first_trials_are_a_front_that_uniform_bits_do_not_beat() -> None:
    search = _search()
    trials = _first_trials(search)
    assert len(trials) >= 10
    points = [
        (sum(search.costs[name][one] for name, one in chosen.items()), search.measured(chosen))
        for chosen in trials
    ]
    for bits in (4, 3):
        uniform: dict[str, AnyChoice] = dict.fromkeys(
            search.losses, Dense.model_validate({"bits": bits})
        )
        cost = sum(search.costs[name][one] for name, one in uniform.items())
        lost = search.measured(uniform)
        # A step of prices is about a quarter of the bytes: the next cheaper file is compared.
        assert any(less <= cost and found < 1.5 * lost for less, found in points), bits


def test_refitting_by_measured_trials_predicts_others_better() -> None:
    search = _search()
    trials = _drawn(search, 48)
    measured = [search.measured(one) for one in trials]
    errors = [{name: search.errors[name][choice] for name, choice in one.items()} for one in trials]
    after = refitted(search.sensitivity, errors[:24], measured[:24])

    def off(sensitivity: Mapping[str, float]) -> float:
        pairs = zip(trials[24:], measured[24:], strict=True)
        return float(
            np.mean(
                [abs(np.log(_predicted(search, sensitivity, one) / loss)) for one, loss in pairs]
            )
        )

    assert off(after) < off(search.sensitivity)
    assert off(after) == pytest.approx(0.0, abs=0.7)
