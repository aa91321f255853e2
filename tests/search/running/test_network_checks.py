import io

import pytest

from models.errors import CheckpointError
from models.graphs.fits import Dense
from search.errors import ReportRefused
from search.graphs.evaluator import handed_out
from search.graphs.model_outputs import ModelOutputs
from search.graphs.network_trial import NetworkTrial
from search.graphs.picks import Pick
from search.running.artifact_checks import check_artifact
from search.running.attempt_checks import check_prepared, check_training
from search.running.network_checks import check_compressed
from search.training.jobs import Completion, EvaluateJob, PrepareNetworkJob
from tests.search.graphs.small_networks import classifier, evaluator, offers

EIGHT = Pick(choice=Dense(bits=8))


def job(**picks: Pick) -> EvaluateJob:
    size = len(evaluator().content(picks))
    trial = NetworkTrial(picks=picks, parameters=9, dense_parameters=9, bytes=size, seed=0)
    return EvaluateJob(
        task=ModelOutputs.example(),
        trial=trial,
        number=1,
        costs=("bytes",),
        sensitivities={"w1": (1.0, 1.0), "w2": (1.0, 1.0)},
    )


def test_honest_files_and_reports_are_taken() -> None:
    made = handed_out(
        evaluator(), {"w1": EIGHT}, offers(), original=classifier().SerializeToString()
    )
    check_artifact("onnx", io.BytesIO(made.content), job(w1=EIGHT))
    report = made.report.model_dump_json().encode()
    check_artifact("report", io.BytesIO(report), job(w1=EIGHT))
    with pytest.raises(ReportRefused, match="another choice for the layer 'w1'"):
        check_artifact("report", io.BytesIO(report), job(w2=EIGHT))


@pytest.mark.parametrize("size", [10, 40_000])
def test_a_file_of_another_size_is_refused(size: int) -> None:
    with pytest.raises(CheckpointError, match=f"it has {size} bytes; predicted are"):
        check_compressed(io.BytesIO(b"\x08" * size), size, job(w1=EIGHT))


def test_a_file_that_is_none_is_refused() -> None:
    wanted = job(w1=EIGHT)
    content = b"PK" + b"\0" * (wanted.trial.bytes - 2)
    with pytest.raises(ReportRefused, match="does not begin as an ONNX file"):
        check_artifact("onnx", io.BytesIO(content), wanted)


def test_a_network_stores_no_checkpoints() -> None:
    with pytest.raises(ReportRefused, match="store no 'checkpoint', but onnx, report"):
        check_artifact("checkpoint", io.BytesIO(b"x"), job(w1=EIGHT))


def test_what_was_prepared_has_offers_that_can_be_read() -> None:
    prepare = PrepareNetworkJob(task=ModelOutputs.example(), costs=("bytes",))
    found = {"train": 1, "validation": 1, "test": 1, "metric": "kl", "baseline": 1.0}
    with pytest.raises(ReportRefused, match="offers"):
        check_prepared(Completion(outcome="complete", prepared={**found, "offers": "x"}), prepare)
    with pytest.raises(ReportRefused, match="offers"):
        check_prepared(Completion(outcome="complete", prepared=found), prepare)


def test_metrics_beyond_what_they_can_be_are_refused() -> None:
    said = {"outcome": "complete", "quality": 0.5, "test_quality": 0.5, "best_epoch": 0}
    curve = {0: 0.5}
    check_training(Completion.model_validate(said), job(w1=EIGHT), curve)
    for changes in ({"test_metrics": {"agreement": 1.5}}, {"quality": -1.0}, {"best_epoch": 1}):
        with pytest.raises(ReportRefused):
            check_training(Completion.model_validate({**said, **changes}), job(w1=EIGHT), curve)
