import logging
import math
from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from models.graphs.fits import Dense, LowRank
from models.graphs.reading import graph_facts
from models.graphs.sessions import GraphSession
from search.errors import SpecRefused, TrainingDiverged
from search.graphs.evaluator import Evaluator, layer_probing, probed_offers
from search.graphs.evaluator.answered_parts import AnsweredPart, ByOutput
from search.graphs.evaluator.fit_cache import FitCache
from search.graphs.metrics import Agreement, Kl, compared
from search.graphs.network_data import network_samples
from search.graphs.picks import Costs, Measured, Pick
from tests.search.graphs.small_networks import (
    HIDDEN,
    INPUTS,
    classifier,
    classifier_samples,
    evaluator,
    offers,
    recurrent,
    vectors,
)

EIGHT = Pick(choice=Dense(bits=8))
TWO = Pick(choice=Dense(bits=2, group=20))


def test_bytes_are_those_of_the_file_and_losses_those_of_its_answers() -> None:
    held = evaluator()
    picks = {"w1": EIGHT, "w2": Pick(choice=LowRank(rank=9, bits=4))}
    found = held.measure(picks)
    content = held.content(picks)
    assert found.costs.bytes == len(content)
    places = held.choosing.places
    assert sorted(places) == list(held.samples.split.choosing)
    files = [GraphSession(one) for one in (classifier().SerializeToString(), content)]
    both = [
        [file.run({"x": vectors()[place : place + 1]})["y"][0] for place in places]
        for file in files
    ]
    expected = compared(Kl(), {"y": both[0]}, {"y": both[1]}).value
    assert held.metric == Kl()
    assert found.loss == pytest.approx(expected, rel=1e-3)
    assert expected > 1e-6


def test_the_network_as_it_is_loses_nothing() -> None:
    held = evaluator()
    found = held.measure({})
    assert found.loss == 0
    assert found.costs.multiply_adds == INPUTS * HIDDEN + HIDDEN * HIDDEN


def test_factors_that_run_take_fewer_multiply_adds_and_as_many_bytes() -> None:
    held = evaluator(("bytes", "multiply_adds"))
    whole = {"w2": Pick(choice=LowRank(rank=5))}
    run = {"w2": Pick(choice=LowRank(rank=5, run=True))}
    one, other = held.measure(whole), held.measure(run)
    assert other.costs.multiply_adds == INPUTS * HIDDEN + 2 * 5 * HIDDEN
    assert one.costs.multiply_adds == INPUTS * HIDDEN + HIDDEN * HIDDEN
    assert other.loss == pytest.approx(one.loss, rel=1e-3)
    assert abs(other.costs.bytes - one.costs.bytes) < 200


def test_an_early_answer_out_of_reach_is_said_to_be_and_the_rest_is_not_run() -> None:
    held = evaluator()
    good, bad = held.measure({"w1": EIGHT}), {"w1": TWO}
    whole = held.measure(bad)
    assert whole.complete
    # A file that is as small and loses little: two bits lose many times as much.
    front = [Measured(good.picks, whole.costs, good.early_loss, good.loss)]
    found = held.measure(bad, front)
    assert not found.complete
    assert found.loss is None
    assert found.early_loss == whole.early_loss > 1.5 * good.early_loss
    # One that is larger says nothing of a smaller one.
    larger = Costs(whole.costs.bytes + 1, whole.costs.multiply_adds)
    assert held.measure(bad, [Measured(good.picks, larger, good.early_loss, good.loss)]).complete


def test_the_early_part_is_an_eighth_of_the_choosing_part() -> None:
    held = evaluator()
    assert len(held.early.places) == len(held.choosing.places) // 8 == 4
    assert set(held.early.places) < set(held.choosing.places)
    assert not {*held.choosing.places} & {*held.test.places}
    assert not {*held.choosing.places} & {*held.samples.split.calibration}


def test_offers_have_both_roundings_below_8_bits_and_the_costs_of_files() -> None:
    held = evaluator()
    for layer in offers():
        picks = [offer.pick for offer in layer.offers]
        assert picks[0].choice.unchanged
        assert all(pick not in picks[:at] for at, pick in enumerate(picks))
        for offer in layer.offers[1:]:
            other = offer.pick.model_copy(update={"compensated": not offer.pick.compensated})
            assert (other in picks) == (offer.pick.choice.bits < 8)
            assert not offer.pick.choice.runs_factors
        kinds = {pick.choice.kind for pick in picks}
        assert kinds == {"dense", "low_rank", "corrected"}
        assert 0 < layer.plain_sensitivity != layer.compensated_sensitivity > 0
    # What a layer costs more than another pick of it, a file does too.
    for first, second in ((EIGHT, TWO), (EIGHT, Pick(choice=Dense()))):
        found = [
            next(offer for offer in offers()[0].offers if offer.pick == pick).costs.bytes
            for pick in (first, second)
        ]
        files = [len(held.content({offers()[0].name: pick})) for pick in (first, second)]
        assert found[0] - found[1] == pytest.approx(files[0] - files[1], abs=500)


def test_bits_alone_can_be_asked_for() -> None:
    for layer in probed_offers(evaluator(), [Dense]):
        assert {offer.pick.choice.kind for offer in layer.offers} == {"dense"}


def test_probes_of_many_layers_answer_fewer_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    held = evaluator()
    answered: list[int] = []
    loss = held.loss

    def counted(part: AnsweredPart, found: ByOutput) -> float:
        answered.append(len(part.places))
        return loss(part, found)

    monkeypatch.setattr(held, "loss", counted)
    whole = probed_offers(held, [Dense])
    monkeypatch.setattr(layer_probing, "MOST_PROBED", 6 * 7)
    part = probed_offers(held, [Dense])
    # Two layers, each with 4 bits in both roundings and a low rank.
    assert answered == [32] * 6 + [7] * 6
    for one, other in zip(whole, part, strict=True):
        assert 0.3 < one.plain_sensitivity / other.plain_sensitivity < 3


def test_fits_that_are_not_kept_are_made_again_alike() -> None:
    held = evaluator()
    picks = [Pick(choice=Dense(bits=bits)) for bits in (4, 3, 8)]
    large = FitCache(held.layers, held.statistics)
    small = FitCache(held.layers, held.statistics, most_bytes=1)
    for pick in (*picks, *picks):
        wanted, found = large.fit("w1", pick), small.fit("w1", pick)
        assert large.fit("w1", pick) is wanted
        assert found is not wanted
        assert found.error == wanted.error
        assert np.array_equal(found.matrices(held.layers[0]), wanted.matrices(held.layers[0]))


def test_states_are_zeros_and_a_metric_can_be_named() -> None:
    model = recurrent()
    arrays = np.random.default_rng(0).standard_normal((60, 9, 1, 14)).astype(np.float32)
    samples = network_samples(graph_facts(model).inputs, {"x": arrays}, each=True, zeros=("h", "c"))
    metric = Agreement(column=True)
    held = Evaluator(model.SerializeToString(), model, samples, metric=metric)
    assert [layer.name for layer in held.layers] == ["W", "R"]
    rough = held.measure({"R": Pick(choice=LowRank(rank=1)), "W": Pick(choice=LowRank(rank=1))})
    good = held.measure({"W": EIGHT})
    assert good.loss is not None
    assert rough.loss is not None
    assert good.loss < rough.loss < 1
    # For each step of a sample: nine of one batch.
    assert rough.costs.multiply_adds == 9 * (80 * 14 + 80 * 20)


def test_an_original_whose_rounding_follows_from_the_batch_is_taken() -> None:
    """As of a network that amplifies the order in which sums are taken; here it is by design."""
    model = classifier()
    model.graph.node[-1].output[0] = "f"
    model.graph.node.extend(
        [
            helper.make_node("Shape", ["x"], ["sizes"], start=0, end=1),
            helper.make_node("Cast", ["sizes"], ["count"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["count", "little"], ["more"]),
            helper.make_node("Add", ["f", "more"], ["y"]),
        ]
    )
    model.graph.initializer.append(numpy_helper.from_array(np.array([1e-5], np.float32), "little"))
    # 31 samples are 4 that are answered first, and 27 in batches of 8, 8, 8 and 3.
    held = Evaluator(model.SerializeToString(), model, classifier_samples(model, 155))
    assert len(held.choosing.places) == 31
    assert held.measure({}).loss == 0


def test_an_original_that_says_nothing_is_refused() -> None:
    model = classifier()
    for weight in model.graph.initializer:
        weight.raw_data = bytes(len(weight.raw_data))
    with pytest.raises(SpecRefused, match=r"100.0 % of the decisions"):
        Evaluator(model.SerializeToString(), model, classifier_samples(model))


def unsteady(nodes: Sequence[onnx.NodeProto], element: int) -> Evaluator:
    """Of one product, and of what nodes make of it; another file need not answer that at all."""
    weight = np.random.default_rng(0).standard_normal((INPUTS, HIDDEN)).astype(np.float32)
    arrays = np.random.default_rng(1).standard_normal((60, 3, INPUTS)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), *nodes],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["T", INPUTS])],
        [
            helper.make_tensor_value_info("h", TensorProto.FLOAT, ["T", HIDDEN]),
            helper.make_tensor_value_info("y", element, [None, None]),
        ],
        [
            numpy_helper.from_array(weight, "w"),
            numpy_helper.from_array(np.float32(1e-3) - (arrays @ weight).min((0, 1)), "least"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    samples = network_samples(graph_facts(model).inputs, {"x": arrays}, each=True)
    return Evaluator(model.SerializeToString(), model, samples)


ROWS = [helper.make_node("Relu", ["h"], ["r"]), helper.make_node("NonZero", ["r"], ["y"])]
ABOVE_ZERO = [helper.make_node("Add", ["h", "least"], ["r"]), helper.make_node("Log", ["r"], ["y"])]


@pytest.mark.parametrize(
    ("nodes", "element", "said"),
    [(ROWS, TensorProto.INT64, "has the shape"), (ABOVE_ZERO, TensorProto.FLOAT, "is not finite")],
    ids=["shape", "NaN"],
)
def test_a_probe_that_cannot_be_compared_is_a_large_loss(
    nodes: Sequence[onnx.NodeProto], element: int, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    held = unsteady(nodes, element)
    with caplog.at_level(logging.INFO):
        (found,) = probed_offers(held, [Dense])
    assert "a probe of the layer w is lost: the answer to sample" in caplog.text
    assert said in caplog.text
    steady = offers()[0]
    assert 100 * steady.plain_sensitivity < found.plain_sensitivity < math.inf
    with pytest.raises(TrainingDiverged, match=said):
        held.measure({"w": Pick(choice=Dense(bits=4))})
