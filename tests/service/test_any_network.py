"""Networks of others on a real server: from an ONNX file to a front of smaller or faster files."""

import csv
import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from models.graphs.sessions import GraphSession
from search.graphs.network_report import NetworkReport
from tests.search.graphs.small_networks import classifier, recurrent, vectors
from tests.service.running import Server, wait_until
from tests.torch_networks import NETWORKS, export, inputs

TRIALS = 8
SMALLER = 2.5
"""Times that some file of each front is smaller, by the bytes of its layers."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(tmp_path_factory.mktemp("networks") / "data")
    yield running.start()
    running.close()


def uploaded(server: Server, content: bytes, arrays: Mapping[str, NDArray[Any]]) -> dict[str, str]:
    """The ids of a network and of data for it."""
    files = {"file": ("network.onnx", content)}
    model = server.http.post("/v1/models", files=files)
    assert model.status_code in (200, 201), model.text
    stream = io.BytesIO()
    np.savez(stream, **arrays)  # pyright: ignore[reportArgumentType]
    data = server.http.post(
        "/v1/datasets", files={"file": ("data.npz", stream.getvalue())}, data={"holds": "arrays"}
    )
    assert data.status_code in (200, 201), data.text
    return {"model": model.json()["id"], "data": data.json()["id"]}


def task_of(server: Server, content: bytes, arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    return {"kind": "model_outputs", **uploaded(server, content, arrays)}


@pytest.fixture(scope="module")
def small(server: Server) -> dict[str, Any]:
    """The task of a small classifier."""
    content = classifier().SerializeToString()
    return task_of(server, content, {"x": vectors(200)})


def file_of(server: Server, study: str, number: int, role: str) -> bytes:
    answer = server.http.get(f"/v1/studies/{study}/trials/{number}/{role}")
    assert answer.status_code == 200, answer.text
    return answer.content


@pytest.fixture(scope="module")
def study_of(server: Server) -> Callable[[str], Any]:
    """The ended study of a network, which is begun when it is first asked for."""

    @cache
    def of(name: str) -> Any:
        task = task_of(server, export(name), inputs(name, samples=120, seed=0))
        study = {"task": task, "budget": {"trials": TRIALS}, "name": name}
        return server.wait(server.submit(study), seconds=300)

    return of


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in ("cnn", "crnn", "tapered_mlp") else pytest.mark.slow)
        for name in NETWORKS
    ],
)
def test_a_network_of_torch_goes_from_upload_to_a_front(
    server: Server, study_of: Callable[[str], Any], name: str
) -> None:
    study = study_of(name)
    assert (study["state"], study["state_reason"]) == ("finished", None)
    assert {trial["outcome"] for trial in server.trials(study["id"])} == {"complete"}
    front = server.get(f"/v1/studies/{study['id']}/front")
    assert front["original"]["trial"] == 0
    assert len(front["points"]) >= 3
    smallest = min(front["points"], key=lambda point: point["values"]["bytes"])
    content = file_of(server, study["id"], smallest["trial"], "onnx")
    assert len(content) == smallest["values"]["bytes"]
    report = NetworkReport.model_validate_json(
        file_of(server, study["id"], smallest["trial"], "report")
    )
    before = sum(layer.bytes_before for layer in report.layers)
    assert before > SMALLER * sum(layer.bytes_after for layer in report.layers)
    # The file is what was measured: anybody finds the same loss, of the same inputs and outputs.
    samples = inputs(name, samples=120, seed=0)
    answers = [
        GraphSession(one).run({key: array[:4] for key, array in samples.items()})
        for one in (export(name), content)
    ]
    assert [*answers[0]] == [*answers[1]]
    for key, right in answers[0].items():
        assert answers[1][key].shape == right.shape
        assert answers[1][key].dtype == right.dtype


def test_the_original_is_trial_0_and_nothing_is_lost_of_it(
    server: Server, study_of: Callable[[str], Any]
) -> None:
    study = study_of("tapered_mlp")
    assert file_of(server, study["id"], 0, "onnx") == export("tapered_mlp")
    trial = server.get(f"/v1/studies/{study['id']}/trials/0")
    assert trial["values"]["quality"] == 0
    assert trial["test_metrics"] == {"kl": 0.0, "agreement": 1.0}
    assert trial["values"]["throughput"] > 0
    assert trial["throughput_ratio"] == 1


def test_files_keep_metadata_and_say_what_became_of_each_layer(server: Server) -> None:
    model = classifier()
    model.metadata_props.add(key="character", value="abc")
    task = task_of(server, model.SerializeToString(), {"x": vectors(200)})
    spec = {"task": {**task, "compare_by": "kl"}, "budget": {"trials": 4}}
    study = server.wait(server.submit(spec))
    made = onnx.load_model_from_string(file_of(server, study["id"], 2, "onnx"))
    told = {entry.key: entry.value for entry in made.metadata_props}
    assert told["character"] == "abc"
    assert any(key.startswith("reflectory.") for key in told)


def test_limits_keep_files_off_the_front(server: Server, small: dict[str, Any]) -> None:
    spec = {
        "task": small,
        "budget": {"trials": 12},
        "limits": {"agreement": 0.97, "bytes": 9000},
    }
    study = server.wait(server.submit(spec))
    assert study["state"] == "finished"
    points = server.get(f"/v1/studies/{study['id']}/front")["points"]
    kept = [point for point in points if point["trial"]]
    assert kept
    assert all(point["values"]["bytes"] <= 9000 for point in kept)
    for point in kept:
        report = json.loads(file_of(server, study["id"], point["trial"], "report"))
        [agreement] = [
            one["value"]
            for one in report["choosing"]["metrics"]
            if one["metric"]["kind"] == "agreement"
        ]
        assert agreement >= 0.97


def test_latency_is_measured_beside_the_original(server: Server, small: dict[str, Any]) -> None:
    spec = {"task": small, "objectives": ["quality", "latency"], "budget": {"trials": 6}}
    study = server.wait(server.submit(spec))
    assert study["state"] == "finished"
    trials = server.trials(study["id"])
    complete = [trial for trial in trials if trial["outcome"] == "complete"]
    assert len(complete) == 6
    assert all(trial["latency_p50"] > 0 for trial in complete)
    assert any("run" in choice for t in complete for choice in t["hyperparameters"].values())
    detail = server.get(f"/v1/studies/{study['id']}/trials/{complete[-1]['number']}")
    record = detail["throughput"]["record"]
    assert record["runtime"] == "onnxruntime"
    assert record["dense_multiply_adds"] > 0
    assert record["calls"] >= 100


def test_a_recurrent_network_is_fed_sample_by_sample_with_states_of_zeros(server: Server) -> None:
    frames = np.random.default_rng(0).standard_normal((120, 9, 1, 14)).astype(np.float32)
    task = task_of(server, recurrent().SerializeToString(), {"frames": frames})
    task |= {"inputs": {"x": "frames"}, "zeros": ["h", "c"], "each": True}
    study = server.wait(server.submit({"task": task, "budget": {"trials": 5}}))
    assert (study["state"], study["state_reason"]) == ("finished", None)
    assert len(server.get(f"/v1/studies/{study['id']}/front")["points"]) >= 2


def test_labels_make_accuracy(server: Server) -> None:
    x = vectors(200)
    session = GraphSession(classifier().SerializeToString())
    y = session.run({"x": x})["y"].argmax(-1).astype(np.int64)
    y[::10] = (y[::10] + 1) % 6
    task = task_of(server, classifier().SerializeToString(), {"x": x, "y": y})
    task |= {"labels": "y", "compare_by": "labels"}
    study = server.wait(server.submit({"task": task, "budget": {"trials": 5}}))
    trial = server.get(f"/v1/studies/{study['id']}/trials/0")
    assert 0.8 < trial["values"]["quality"] < 1
    report = json.loads(file_of(server, study["id"], 1, "report"))
    assert [one["metric"]["kind"] for one in report["test"]["metrics"]] == ["labels", "agreement"]


@pytest.mark.parametrize(
    ("changes", "path", "words"),
    [
        ({"inputs": {"x": "other"}}, "task.inputs.x", "no array 'other'; allowed are 'x'"),
        ({"inputs": {"z": "x"}}, "task.inputs.z", "none of this name; allowed are 'x'"),
        ({"outputs": ["z"]}, "task.outputs.z", "allowed are 'y'"),
        ({"zeros": ["x"]}, "task.data", "no input has samples"),
        ({"labels": "y"}, "task.labels", "no array 'y'"),
        ({"compare_by": "labels"}, "task.labels", "needs them"),
        ({"split": [0.5, 0.5, 0.5]}, "task.split", "sum is 1"),
        ({"split": [0.05, 0.5, 0.45]}, "task.data", "at least 16"),
        ({"model": "0123456789ab"}, "task.model", "no model"),
        ({"data": "0123456789ab"}, "task.data", "no data set"),
    ],
)
def test_bad_tasks_are_refused_where_they_are_wrong(
    server: Server, small: dict[str, Any], changes: dict[str, Any], path: str, words: str
) -> None:
    answer = server.http.post("/v1/studies", json={"task": {**small, **changes}})
    assert answer.status_code == 422, answer.text
    [error] = [one for one in answer.json()["errors"] if one["path"] == path]
    assert words in error["message"]


@pytest.mark.parametrize(
    ("changes", "path", "words"),
    [
        ({"architectures": ["gru"]}, "", "architectures is ('gru',)"),
        ({"sampler": {"kind": "tpe"}}, "sampler", "allowed with model_outputs is by_layer"),
        ({"throughput": {"runtime": "c"}}, "throughput.runtime", "allowed is 'onnxruntime'"),
        ({"limits": {"state_bytes": 5}}, "limits.state_bytes", "not known"),
        ({"resources": {"stack": 4}}, "", "allowed is 1"),
    ],
)
def test_what_a_network_has_not_is_refused(
    server: Server, small: dict[str, Any], changes: dict[str, Any], path: str, words: str
) -> None:
    answer = server.http.post("/v1/studies", json={"task": small, **changes})
    assert answer.status_code == 422, answer.text
    errors = answer.json()["errors"]
    assert any(one["path"] == path and words in one["message"] for one in errors), errors


def test_data_that_say_nothing_fail_the_study_with_a_sentence(server: Server) -> None:
    task = task_of(server, classifier().SerializeToString(), {"x": np.zeros((100, 40), np.float32)})
    study = server.wait(server.submit({"task": task, "budget": {"trials": 3}}))
    assert study["state"] == "failed"
    assert "% of the decisions of the output 'y' are the same" in study["state_reason"]


@pytest.mark.slow
def test_trials_survive_the_death_of_everything(server: Server, small: dict[str, Any]) -> None:
    study = server.submit({"task": {**small, "split_seed": 5}, "budget": {"trials": 14}})

    def some_complete() -> bool:
        progress = server.study(study)["progress"]
        return progress["trials"]["complete"] >= 3

    wait_until(some_complete, what="three complete trials")
    server.kill_everything()
    server.start()
    found = server.wait(study)
    assert (found["state"], found["state_reason"]) == ("finished", None)
    trials = server.trials(study)
    assert len(trials) == 14
    assert {trial["outcome"] for trial in trials} == {"complete"}
    choices = [json.dumps(trial["hyperparameters"], sort_keys=True) for trial in trials]
    assert len({*choices}) == 14


@pytest.fixture(scope="module")
def finished(server: Server, small: dict[str, Any]) -> dict[str, Any]:
    """A study of the small classifier that has ended."""
    spec = {"task": small, "budget": {"trials": 8}, "name": "small classifier"}
    study = server.wait(server.submit(spec))
    assert study["state"] == "finished"
    return study


def page(server: Server, path: str) -> str:
    answer = server.http.get(path)
    assert answer.status_code == 200, (path, answer.text[:500])
    return answer.text


def test_pages_tell_of_a_network_in_its_own_words(
    server: Server, finished: dict[str, Any], small: dict[str, Any]
) -> None:
    text = page(server, f"/studies/{finished['id']}")
    assert "Kullback-Leibler" in text or "kl" in text.lower()
    assert "quantize_dynamic" in text
    assert "householder" not in text
    assert "ccuracy" not in text
    trial = page(server, f"/studies/{finished['id']}/trials/2")
    assert "w1" in trial
    assert "Agreement" in trial or "agreement" in trial
    assert "Compress it" in page(server, f"/models/{small['model']}")
    assert "Compress a network on these data" in page(server, f"/datasets/{small['data']}")
    report = server.http.get(f"/v1/studies/{finished['id']}/trials/2/report?format=html")
    assert "valid for data like the data given" in report.text.lower()


def test_a_folder_holds_a_file_that_runs_where_there_is_nothing_else(
    server: Server, finished: dict[str, Any], tmp_path: Path
) -> None:
    content = file_of(server, finished["id"], 2, "folder")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        archive.extractall(tmp_path)
    [folder] = {path.parent for path in tmp_path.rglob("model.onnx")}
    assert (folder / "model.onnx").read_bytes() == file_of(server, finished["id"], 2, "onnx")
    for name in ("report.json", "report.html", "MODEL_CARD.md", "example.py"):
        assert (folder / name).stat().st_size > 0
    ran = subprocess.run(
        [sys.executable, "example.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "y" in ran.stdout


@pytest.mark.slow
def test_the_form_begins_a_study_of_a_network(server: Server, small: dict[str, Any]) -> None:
    form = page(server, f"/studies/new?model={small['model']}")
    assert 'value="model_outputs" id="task-model_outputs" checked' in form
    assert small["model"] in form
    fields = {
        "form": "a-form-of-a-network",
        "task": "model_outputs",
        "task:model_outputs:model": small["model"],
        "task:model_outputs:data": small["data"],
        "objectives": ["quality", "bytes"],
        "budget:trials": "3",
        "early_stopping": "none",
        "extra": '{"task": {"compare_by": "agreement"}}',
    }
    checked = server.http.post("/studies/new", data={**fields, "act": "check"})
    assert checked.status_code == 200, checked.text
    assert "This can be run" in checked.text
    started = server.http.post("/studies/new", data={**fields, "act": "start"})
    assert started.status_code == 303, started.text
    study = server.wait(started.headers["location"].rpartition("/")[2])
    assert study["state"] == "finished"
    assert study["spec"]["task"]["compare_by"]["kind"] == "agreement"
    again = page(server, f"/studies/new?from={study['id']}")
    assert small["data"] in again
    wrong = {**fields, "task:model_outputs:data": "0123456789ab", "act": "start"}
    refused = server.http.post("/studies/new", data=wrong)
    assert refused.status_code == 422
    assert "no data set" in refused.text


def test_uploads_that_a_study_needs_stay(server: Server) -> None:
    names = uploaded(server, classifier(seed=9).SerializeToString(), {"x": vectors(300)})
    study = server.submit({"task": {"kind": "model_outputs", **names}, "budget": {"trials": 3}})
    for path in (f"/v1/models/{names['model']}", f"/v1/datasets/{names['data']}"):
        answer = server.http.delete(path)
        assert answer.status_code == 409, answer.text
        assert study in answer.text
    server.wait(study)
    for path in (f"/v1/models/{names['model']}", f"/v1/datasets/{names['data']}"):
        assert server.http.delete(path).status_code == 204


def test_a_front_and_tables_say_what_is_known_of_files(
    server: Server, finished: dict[str, Any]
) -> None:
    path = f"/v1/studies/{finished['id']}"
    for point in server.get(f"{path}/front")["points"]:
        # Each layer has its own.
        assert point["bits"] is None
        assert 0 <= point["test_agreement"] <= 1
    tables = {
        part: list(csv.DictReader(io.StringIO(server.http.get(f"{path}/{part}?format=csv").text)))
        for part in ("front", "trials")
    }
    for rows in tables.values():
        assert {row["stored_as"] for row in rows} <= {"original", "bits", "structure"}
        assert all(0 <= float(row["test_agreement"]) <= 1 for row in rows)
        assert all(int(row["bytes"]) > 0 for row in rows)
        assert not {"architecture", "parametrization", "bits", "dense_parameters"} & rows[0].keys()
    assert len(tables["trials"]) >= len(tables["front"]) >= 1


def test_a_named_trial_is_refused_with_a_sentence(server: Server, finished: dict[str, Any]) -> None:
    named = {"architecture": "network", "parametrization": "bits", "hyperparameters": {}}
    answer = server.http.post(f"/v1/studies/{finished['id']}/trials", json=named)
    assert answer.status_code in (409, 422), answer.text
