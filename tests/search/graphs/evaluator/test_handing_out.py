import json

import onnx
import pytest

from models.errors import ExportError
from models.graphs.fits import Dense, LowRank
from search.graphs.evaluator import NetworkReport, handed_out
from search.graphs.metrics import Agreement, Kl
from search.graphs.picks import Pick
from tests.search.graphs.small_networks import classifier, evaluator, offers

FOUR = {"w1": Pick(choice=Dense(bits=4), compensated=False), "w2": Pick(choice=Dense(bits=8))}


def test_a_file_is_described_layer_by_layer() -> None:
    held, original = evaluator(), classifier().SerializeToString()
    found = handed_out(
        held, FOUR, offers(), original=original, metrics=[Agreement(), Kl()]
    )
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
