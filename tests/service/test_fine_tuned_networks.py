"""The front of a network of others is trained further on a real server, when its search is over."""

from collections.abc import Iterator
from typing import Any

import onnx
import pytest
from onnx import helper

from search.graphs.network_report import NetworkReport
from tests.search.graphs.small_networks import classifier, vectors
from tests.service.running import Server, wait_until
from tests.service.test_any_network import file_of, task_of

TRIALS = 10
EPOCHS = 24
HOW = {"epochs": EPOCHS, "points": 3}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(tmp_path_factory.mktemp("tuned") / "data")
    yield running.start()
    running.close()


@pytest.fixture(scope="module")
def task(server: Server) -> dict[str, Any]:
    return task_of(server, classifier().SerializeToString(), {"x": vectors(200)})


def test_points_of_the_front_are_trained_beyond_the_budget(
    server: Server, task: dict[str, Any]
) -> None:
    spec = {"task": {**task, "fine_tune": HOW}, "budget": {"trials": TRIALS}}
    study_id = server.submit(spec)

    def is_trained() -> bool:
        return any(trial["origin"] == "fine_tuning" for trial in server.trials(study_id))

    wait_until(is_trained, what="a trial that is trained")
    # The rows alone say what is still to be trained.
    server.kill_everything()
    server.start()
    study = server.wait(study_id)
    assert (study["state"], study["state_reason"]) == ("finished", None)
    assert study["progress"]["trials"]["total"] == TRIALS
    trials = server.trials(study_id)
    assert len(trials) == TRIALS + 3
    assert {trial["outcome"] for trial in trials} == {"complete"}
    front = server.get(f"/v1/studies/{study_id}/front")
    numbers = [point["trial"] for point in front["points"]]
    for trial in trials[TRIALS:]:
        base = trials[trial["continues"]]
        assert (trial["origin"], trial["epochs_trained"]) == ("fine_tuning", EPOCHS)
        assert trial["hyperparameters"] == base["hyperparameters"]
        assert trial["values"]["bytes"] == base["values"]["bytes"]
        curve = server.get(f"/v1/studies/{study_id}/trials/{trial['number']}/metrics")
        assert [row["epoch"] for row in curve] == list(range(EPOCHS + 1))
        assert [row["train_loss"] is None for row in curve] == [True, *[False] * EPOCHS]
        assert curve[0]["validation"] == pytest.approx(base["values"]["quality"], rel=1e-4)
        assert trial["values"]["quality"] == curve[trial["best_epoch"]]["validation"]
        assert trial["values"]["quality"] == min(row["validation"] for row in curve)
        if trial["best_epoch"] == 0:
            # Its file is that of the trial that it continues, and no second point.
            assert trial["number"] not in numbers
            continue
        content = file_of(server, study_id, trial["number"], "onnx")
        assert len(content) == trial["values"]["bytes"]
        report = NetworkReport.model_validate_json(
            file_of(server, study_id, trial["number"], "report")
        )
        assert report.training is not None
        assert (report.training.epochs, report.training.best_epoch) == (EPOCHS, trial["best_epoch"])
    smallest = min(trials[TRIALS:], key=lambda trial: trial["values"]["bytes"])
    before = trials[smallest["continues"]]["values"]["quality"]
    assert smallest["values"]["quality"] < 0.8 * before
    # It takes the place of the point that it was trained from.
    assert smallest["number"] in numbers
    assert smallest["continues"] not in numbers


def test_a_network_that_cannot_be_trained_is_searched_all_the_same(server: Server) -> None:
    model = classifier()
    model.graph.node.append(helper.make_node("ArgMax", ["y"], ["k"], axis=-1, keepdims=1))
    model.graph.output.append(helper.make_tensor_value_info("k", onnx.TensorProto.INT64, ["N", 1]))
    task = task_of(server, model.SerializeToString(), {"x": vectors(200)})
    task |= {"outputs": ["k"], "compare_by": "relative_error", "fine_tune": HOW}
    study = server.wait(server.submit({"task": task, "budget": {"trials": 4}}))
    assert (study["state"], study["state_reason"]) == ("finished", None)
    assert {trial["origin"] for trial in server.trials(study["id"])} == {"original", "sampler"}


@pytest.mark.parametrize(
    ("how", "path"),
    [
        ({"epochs": 0}, "epochs"),
        ({"learning_rate": 0}, "learning_rate"),
        ({"steps": 5}, "steps"),
    ],
)
def test_what_training_cannot_be_is_refused(
    server: Server, task: dict[str, Any], how: dict[str, Any], path: str
) -> None:
    answer = server.http.post("/v1/studies", json={"task": {**task, "fine_tune": how}})
    assert answer.status_code == 422, answer.text
    assert any(f"fine_tune.{path}" in one["path"] for one in answer.json()["errors"])
