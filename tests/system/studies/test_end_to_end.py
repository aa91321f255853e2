"""The main job over HTTP: submit, run, compare, download.

Every number is checked by another road.
"""

import csv
import io
import json
from itertools import product
from pathlib import Path

import onnx
import optuna
import pytest
import torch

from models import checkpoint
from tests.search.mnist_files import write_mnist
from tests.service.running import Server, wait_until

SPEC = {
    "name": "two architectures, five parametrizations",
    "task": {"kind": "digits"},
    "architectures": ["rnn", "gru"],
    "parametrizations": [
        "dense",
        "householder_svd",
        "low_rank",
        "low_rank_diagonal",
        "packed_rotations",
    ],
    "space": {"hidden_size": {"low": 8, "high": 24}},
    "budget": {"trials": 10, "epochs": 2},
    "sampler": {"kind": "random"},
    "seed": 3,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory):
    running = Server(tmp_path_factory.mktemp("end-to-end") / "data")
    yield running.start()
    running.close()


@pytest.fixture(scope="module")
def study(server: Server) -> dict:
    ended = server.wait(server.submit(SPEC))
    assert ended["state"] == "finished", ended
    return ended


def test_every_trial_ends_complete_with_all_three_objectives(server, study) -> None:
    trials = server.trials(study["id"])
    assert [trial["number"] for trial in trials] == list(range(10))
    assert {trial["outcome"] for trial in trials} == {"complete"}
    for trial in trials:
        assert 0 <= trial["values"]["quality"] <= 1
        assert trial["values"]["parameters"] > 0
        assert trial["values"]["throughput"] > 0
        assert 0 <= trial["test_quality"] <= 1
        assert len(server.curve(study["id"], trial["number"])) == 2
    assert study["progress"]["trials"]["complete"] == study["progress"]["trials"]["total"] == 10
    assert study["progress"]["epochs_trained"] == 20
    assert study["progress"]["hypervolume"] > 0
    assert 0 < study["progress"]["measuring_share"] < 1


def test_front_is_the_brute_force_front_and_optunas_best_trials(server, study) -> None:
    trials = {trial["number"]: trial["values"] for trial in server.trials(study["id"])}

    def dominates(a: dict, b: dict) -> bool:
        costs = [(-x["quality"], x["parameters"], -x["throughput"]) for x in (a, b)]
        return costs[0] != costs[1] and all(p <= q for p, q in zip(*costs, strict=True))

    beaten = {b for a, b in product(trials, trials) if dominates(trials[a], trials[b])}
    front = server.get(f"/v1/studies/{study['id']}/front")
    numbers = [point["trial"] for point in front["points"]]
    assert numbers == sorted(set(trials) - beaten)
    for point in front["points"]:
        assert point["values"] == trials[point["trial"]]

    mirrored = optuna.load_study(
        study_name=f"{SPEC['name']} [{study['id']}]",
        storage=f"sqlite:///{server.data_dir / 'optuna.db'}",
    )
    assert sorted(trial.number for trial in mirrored.best_trials) == numbers
    assert mirrored.metric_names == ["accuracy", "parameters", "throughput"]


def test_front_as_csv_says_the_same(server, study) -> None:
    front = server.get(f"/v1/studies/{study['id']}/front")
    answer = server.http.get(f"/v1/studies/{study['id']}/front", params={"format": "csv"})
    assert answer.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [int(row["trial"]) for row in rows] == [point["trial"] for point in front["points"]]


def test_front_over_fewer_objectives_is_asked_for_by_name(server, study) -> None:
    front = server.get(f"/v1/studies/{study['id']}/front", objectives="parameters")
    smallest = min(trial["values"]["parameters"] for trial in server.trials(study["id"]))
    assert {point["values"]["parameters"] for point in front["points"]} == {smallest}
    assert front["hypervolume"] is None


def test_a_checkpoint_is_downloaded_and_rebuilt_with_the_counts_of_its_report(
    server, study, tmp_path: Path
) -> None:
    for trial in server.trials(study["id"]):
        base = f"/v1/studies/{study['id']}/trials/{trial['number']}"
        file = tmp_path / "model.safetensors"
        file.write_bytes(server.http.get(f"{base}/checkpoint").content)
        loaded = checkpoint.load(file)
        total = sum(parameter.numel() for parameter in loaded.module.parameters())
        report = server.get(f"{base}/report")
        assert total == trial["values"]["parameters"] == report["totals"]["parameters"]
        signature = loaded.spec.signature
        inputs = torch.zeros(2, signature.sequence_length, signature.input_size)
        assert loaded.module(inputs).shape == (2, signature.output_size)


def test_every_point_of_the_final_front_gets_an_onnx_file_unasked(server, study) -> None:
    def links() -> list[str | None]:
        points = server.get(f"/v1/studies/{study['id']}/front")["points"]
        return [point["links"]["onnx"] for point in points]

    wait_until(lambda: None not in links(), what="an ONNX file of every point")
    for link in links():
        content = server.http.get(link).content
        onnx.checker.check_model(onnx.load_from_string(content))


def test_a_downloaded_checkpoint_reaches_the_quality_that_the_service_reports(
    server, study, tmp_path: Path
) -> None:
    """The task's splits are loaded here again.

    And the model judged without the service's code for it.
    """
    from search.tasks import DataSources, Digits

    best = max(server.trials(study["id"]), key=lambda trial: trial["values"]["quality"])
    file = tmp_path / "best.safetensors"
    path = f"/v1/studies/{study['id']}/trials/{best['number']}/checkpoint"
    file.write_bytes(server.http.get(path).content)
    module = checkpoint.load(file).module.eval()
    splits = Digits().load(DataSources(folder=None, cache=tmp_path))
    for split, reported in (
        (splits.validation, best["values"]["quality"]),
        (splits.test, best["test_quality"]),
    ):
        with torch.inference_mode():
            predicted = module(split.x).argmax(-1)
        assert (predicted == split.y).double().mean().item() == pytest.approx(reported, abs=1e-9)


def test_equal_shapes_are_measured_once(server, study) -> None:
    """20 trials of two sizes share their measurements; the record names its circumstances."""
    spec = {
        **SPEC,
        "architectures": ["rnn"],
        "parametrizations": ["dense"],
        "space": {"hidden_size": {"options": [8, 9]}, "batch_size": 64},
        "budget": {"trials": 8, "epochs": 1},
    }
    ended = server.wait(server.submit(spec))
    trials = server.trials(ended["id"])
    speeds = {trial["hyperparameters"]["rnn.hidden_size"]: set() for trial in trials}
    for trial in trials:
        speeds[trial["hyperparameters"]["rnn.hidden_size"]].add(trial["values"]["throughput"])
    assert all(len(values) == 1 for values in speeds.values()), speeds
    events = _events(server, ended["id"])
    measured = [data for kind, _, data in events if kind == "measurement"]
    assert len(measured) == len(speeds)
    record = server.get(f"/v1/studies/{ended['id']}/trials/0")["throughput"]["record"]
    for name in ("device", "threads", "batch_size", "dtype", "rounds"):
        assert name in record, record


def test_events_are_numbered_without_gaps_and_end_with_the_study(server, study) -> None:
    events = _events(server, study["id"])
    assert [number for _, number, _ in events] == list(range(1, len(events) + 1))
    ended = [
        data["trial"] for kind, _, data in events if kind == "trial" and data["state"] == "complete"
    ]
    assert sorted(ended) == list(range(10))
    kind, _, data = events[-1]
    assert (kind, data["state"]) == ("study", "finished")


def test_the_hypervolume_grows_to_that_of_the_front(server, study) -> None:
    changes = server.get(f"/v1/studies/{study['id']}/hypervolume")
    front = server.get(f"/v1/studies/{study['id']}/front")
    volumes = [change["hypervolume"] for change in changes]
    assert volumes == sorted(volumes)
    assert volumes[-1] == front["hypervolume"] == study["progress"]["hypervolume"]
    assert changes[-1]["points"] == len(front["points"])
    for name in ("epochs_trained", "wall_seconds", "at"):
        assert [change[name] for change in changes] == sorted(change[name] for change in changes)
    assert 0 < changes[0]["wall_seconds"] <= study["progress"]["wall_seconds"]
    assert {change["trial"] for change in changes} <= set(range(10))


def _events(server: Server, study_id: str) -> list[tuple[str, int, dict]]:
    """The whole stream, which ends with the study."""
    found: list[tuple[str, int, dict]] = []
    event: dict[str, str] = {}
    with server.http.stream("GET", f"/v1/studies/{study_id}/events") as stream:
        for line in stream.iter_lines():
            if line:
                name, _, value = line.partition(": ")
                event[name] = value
            elif "data" in event:
                found.append((event["event"], int(event["id"]), json.loads(event["data"])))
                event = {}
    return found


def test_one_objective_without_throughput_has_its_front_measured_at_the_end(server) -> None:
    spec = {
        **SPEC,
        "architectures": ["rnn"],
        "parametrizations": ["dense", "low_rank"],
        "objectives": ["parameters"],
        "budget": {"trials": 4, "epochs": 1},
    }
    ended = server.wait(server.submit(spec))
    assert ended["state"] == "finished"
    front = server.get(f"/v1/studies/{ended['id']}/front")
    assert front["points"]
    assert all(point["values"]["throughput"] > 0 for point in front["points"])
    unmeasured = [t for t in server.trials(ended["id"]) if t["values"]["throughput"] is None]
    assert len(unmeasured) < 4


@pytest.mark.slow
def test_one_slot_without_throughput_gives_the_same_study_twice(tmp_path: Path) -> None:
    spec = {
        **SPEC,
        "objectives": ["quality", "parameters"],
        "sampler": {"kind": "tpe", "startup_trials": 3},
    }
    running = Server(tmp_path / "data", workers=1).start()
    try:
        results = []
        for _ in range(2):
            ended = running.wait(running.submit(spec))
            results.append(
                [
                    (
                        trial["hyperparameters"],
                        trial["architecture"],
                        trial["parametrization"],
                        trial["values"]["quality"],
                        trial["test_quality"],
                    )
                    for trial in running.trials(ended["id"])
                ]
            )
        assert results[0] == results[1]
    finally:
        running.close()


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_study_of_mnist_files_runs_on_postgresql(tmp_path: Path, database_url: str) -> None:
    """Our tables and Optuna's in one database; MNIST's files are made of the bundled digits."""
    write_mnist(tmp_path / "files" / "mnist")
    environment = {
        "REFLECTORY_DATA": str(tmp_path / "files"),
        "REFLECTORY_DATABASE_URL": database_url,
        "REFLECTORY_OPTUNA_URL": database_url,
    }
    spec = {
        **SPEC,
        "task": {"kind": "mnist", "layout": "112x7"},
        "parametrizations": ["dense", "low_rank"],
        "budget": {"trials": 4, "epochs": 1},
    }
    running = Server(tmp_path / "data", environment=environment).start()
    try:
        study_id = running.submit(spec)
        wait_until(lambda: running.workers_at_work(), what="a worker")
        running.kill_everything()
        ended = running.start().wait(study_id)
        assert ended["state"] == "finished", ended
        assert ended["progress"]["trials"]["complete"] == 4
        assert running.get(f"/v1/studies/{study_id}/front")["points"]
        assert running.http.get("/api/studies").status_code == 200
    finally:
        running.close()
