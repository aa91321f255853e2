import json
import tempfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from models.errors import ExportError
from models.graphs.fits import Dense, LowRank
from models.graphs.reading import folded, read_graph
from search.graphs.evaluator import Evaluator, NetworkReport, handed_out
from search.graphs.metrics import Agreement, Kl
from search.graphs.picks import Pick
from tests.search.graphs.small_networks import (
    HIDDEN,
    INPUTS,
    classifier,
    classifier_samples,
    evaluator,
    offers,
)

FOUR = {"w1": Pick(choice=Dense(bits=4), compensated=False), "w2": Pick(choice=Dense(bits=8))}


def test_a_file_is_described_layer_by_layer() -> None:
    held, original = evaluator(), classifier().SerializeToString()
    found = handed_out(held, FOUR, offers(), original=original, metrics=[Agreement(), Kl()])
    report = found.report
    assert found.content == held.content(FOUR)
    assert report.bytes_after == len(found.content)
    assert report.bytes_before == len(original)
    assert abs(report.bytes_predicted - report.bytes_after) < 0.02 * report.bytes_after + 1024
    first, second = report.layers
    assert (first.name, first.operator, first.shape) == ("w1", "MatMul", (40, 48))
    assert first.bytes_before == 4 * 40 * 48
    assert first.bytes_after == 40 * 48 // 2 + 2 * 48
    assert first.local_error == held.fits.fit("w1", FOUR["w1"]).error > second.local_error
    assert not first.compensated
    assert first.sensitivity == offers()[0].plain_sensitivity
    assert first.predicted_share + second.predicted_share == pytest.approx(1)
    assert report.predicted_loss == pytest.approx(
        first.sensitivity * first.local_error + second.sensitivity * second.local_error
    )
    assert report.choosing.metrics[0].value == held.measure(FOUR).loss
    kl, agreement = report.test.metrics
    assert (kl.metric, agreement.metric) == (Kl(), Agreement())
    assert agreement.low is not None
    assert agreement.high is not None
    assert agreement.low < agreement.value < agreement.high
    assert {*report.test.worst} <= {*held.samples.split.test.tolist()}
    assert report.test.samples == 64
    assert report.warnings == ("valid for data like the data given",)
    assert NetworkReport.model_validate(json.loads(report.model_dump_json())) == report


def test_nodes_that_run_are_those_of_the_network_unless_factors_run() -> None:
    held = evaluator(("bytes", "multiply_adds"))
    original = classifier().SerializeToString()
    kept = handed_out(held, FOUR, offers(), original=original).report
    run = {"w1": Pick(choice=LowRank(rank=7, run=True))}
    more = handed_out(held, run, offers(), original=original).report
    assert more.node_types["MatMul"] == kept.node_types["MatMul"] + 1
    assert more.multiply_adds_after < more.multiply_adds_before == kept.multiply_adds_after


def test_a_file_that_runs_other_nodes_is_not_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    held = evaluator()
    whole = held.content

    def altered(picks: dict[str, Pick]) -> bytes:
        made = onnx.load_model_from_string(whole(picks))
        output = made.graph.node[-1].output[0]
        made.graph.node[-1].output[0] = "inner"
        made.graph.node.append(onnx.helper.make_node("Abs", ["inner"], [output]))
        return made.SerializeToString()

    monkeypatch.setattr(held, "content", altered)
    with pytest.raises(ExportError, match=r"other nodes.*'Abs': 1"):
        handed_out(held, FOUR, offers(), original=b"?")


def test_halves_that_are_read_in_single_precision_count_as_what_they_take() -> None:
    """Folding makes them twice as large; one is turned on its way besides."""
    whole = classifier()
    halved = onnx.ModelProto()
    halved.CopyFrom(whole)
    for tensor in halved.graph.initializer[:2]:
        numbers = numpy_helper.to_array(tensor).astype(np.float16)
        kept = numbers if tensor.name == "w1" else np.ascontiguousarray(numbers.T)
        tensor.CopyFrom(numpy_helper.from_array(kept, f"{tensor.name}.half"))
    casts = [
        helper.make_node("Cast", ["w1.half"], ["w1"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["w2.half"], ["w2.turned"], to=TensorProto.FLOAT),
        helper.make_node("Transpose", ["w2.turned"], ["w2"], perm=[1, 0]),
    ]
    nodes = [*casts, *halved.graph.node]
    del halved.graph.node[:]
    halved.graph.node.extend(nodes)
    with tempfile.TemporaryDirectory() as folder:
        model = folded(read_graph(halved.SerializeToString()), Path(folder)).model
    original = halved.SerializeToString()
    held = Evaluator(original, model, classifier_samples(model))
    picks = {"w1": Pick(choice=Dense(bits=8))}
    report = handed_out(held, picks, offers(), original=original).report
    numbers = {layer.name: layer.bytes_before for layer in report.layers}
    assert numbers == {"w1": 2 * INPUTS * HIDDEN, "w2": 2 * HIDDEN * HIDDEN}
    # The other stays as large as folding has made it, and the file says so.
    after = {layer.name: layer.bytes_after for layer in report.layers}
    assert after["w2"] == 4 * HIDDEN * HIDDEN
    assert report.bytes_before == len(original)
    # Of a file that stores them in single precision nothing is halved.
    plain = handed_out(evaluator(), picks, offers(), original=whole.SerializeToString()).report
    assert {layer.bytes_before for layer in plain.layers} == {
        4 * INPUTS * HIDDEN,
        4 * HIDDEN * HIDDEN,
    }
