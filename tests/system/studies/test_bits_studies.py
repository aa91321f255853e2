"""Studies over bits, on a real server: from the document to the files of the front."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from models.checkpoint import load, save_bytes
from models.report import ParameterReport, parameter_report
from search.tasks import DataSources, Digits
from tests.service.running import Server, command, wait_until

TASK = Digits(train_samples=200)
SPEC: dict[str, Any] = {
    "task": TASK.model_dump(mode="json"),
    "architectures": ["gru", "mlp"],
    "parametrizations": ["low_rank", "householder_svd"],
    "space": {
        "bits": {"options": [32, 8, 4]},
        "hidden_size": {"low": 8, "high": 16},
        "quantised_epochs": 1,
    },
    "objectives": ["quality", "parameters"],
    "sampler": {"kind": "random"},
    "budget": {"trials": 10, "epochs": 2},
    "seed": 4,
}
FORMATS = {32: b"reflectory.checkpoint.1", 8: b"reflectory.checkpoint.2"}
FORMATS[4] = FORMATS[8]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(tmp_path_factory.mktemp("bits") / "data")
    yield running.start()
    running.close()


@pytest.fixture(scope="module")
def study(server: Server) -> dict[str, Any]:
    found = server.wait(server.submit(SPEC))
    assert (found["state"], found["state_reason"]) == ("finished", None)
    return found


def downloaded(server: Server, path: str) -> bytes:
    def there() -> bytes | None:
        answer = server.http.get(path)
        assert answer.status_code in (200, 202), answer.text
        return answer.content if answer.status_code == 200 else None

    return wait_until(there, what=path)


def test_bits_are_a_dimension_like_others(server: Server, study: dict[str, Any]) -> None:
    dry = server.http.post("/v1/studies", params={"dry_run": "true"}, json=SPEC).json()
    options = {one["name"]: one.get("options") for one in dry["dimensions"]}
    assert options["model.bits"] == [32, 8, 4]
    trials = server.trials(study["id"])
    assert {trial["hyperparameters"]["model.bits"] for trial in trials} == {32, 8, 4}
    text = server.http.get(f"/v1/studies/{study['id']}/trials?format=csv").text
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [int(row["model.bits"]) for row in rows] == [
        trial["hyperparameters"]["model.bits"] for trial in trials
    ]


def test_every_trial_is_stored_at_its_bits_and_is_as_good_as_is_told(
    server: Server, study: dict[str, Any], tmp_path: Path
) -> None:
    splits = TASK.load(DataSources(cache=tmp_path))
    sizes: dict[int, list[float]] = {32: [], 8: [], 4: []}
    for trial in server.trials(study["id"]):
        assert trial["outcome"] == "complete", trial
        bits, path = trial["hyperparameters"]["model.bits"], trial["links"]["trial"]
        content = downloaded(server, trial["links"]["checkpoint"])
        assert FORMATS[bits] in content
        loaded = load(content)
        assert loaded.spec.bits == bits
        assert save_bytes(loaded.module, loaded.spec, extra=loaded.metadata) == content
        with torch.no_grad():
            guesses = loaded.module.eval()(splits.validation.x).argmax(-1)
        accuracy = float((guesses == splits.validation.y).double().mean())
        assert trial["values"]["quality"] == pytest.approx(accuracy)
        report = server.get(f"{path}/report")
        told = {name: report[name] for name in ParameterReport.model_fields}
        assert ParameterReport.model_validate(told) == parameter_report(loaded.spec)
        totals = report["totals"]
        sizes[bits].append(totals["stored_bytes"] / totals["size_bytes"])
        curve = server.get(f"{path}/metrics")
        assert [row["epoch"] for row in curve] == [1, 2]
        assert trial["values"]["quality"] == max(row["validation"] for row in curve)
    assert set(sizes[32]) == {1.0}
    assert max(sizes[4]) < min(sizes[8]) < max(sizes[8]) < 0.6


def test_trials_are_named_and_continued_with_their_bits(
    server: Server, study: dict[str, Any]
) -> None:
    path = f"/v1/studies/{study['id']}/trials"
    named = {
        "architecture": "gru",
        "parametrization": "low_rank",
        "hyperparameters": {"bits": 4, "hidden_size": 12},
    }
    assert server.http.post(path, json=named).status_code == 202
    first = wait_until(lambda: _ended(server, study, 10), what="the named trial")
    assert first["hyperparameters"]["model.bits"] == 4
    assert server.http.post(path, json={"continues": 10}).status_code == 202
    second = wait_until(lambda: _ended(server, study, 11), what="the continued trial")
    assert second["hyperparameters"]["model.bits"] == 4
    loaded = load(downloaded(server, second["links"]["checkpoint"]))
    assert loaded.spec.bits == 4
    wrong = {**named, "hyperparameters": {"bits": 16}}
    refused = server.http.post(path, json=wrong)
    assert refused.status_code == 422
    (error,) = refused.json()["errors"]
    assert error["path"] == "hyperparameters.bits"
    assert "16" in error["message"]
    assert "[32,8,4]" in error["message"]


def _ended(server: Server, study: dict[str, Any], number: int) -> dict[str, Any] | None:
    trials = server.trials(study["id"])
    found = trials[number] if len(trials) > number else None
    return found if found is not None and found["outcome"] == "complete" else None


def test_bits_that_there_are_not_are_refused_at_their_path(server: Server) -> None:
    answer = server.http.post("/v1/studies", json={**SPEC, "space": {"bits": 16}})
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["path"] == "space.bits"
    assert "one of 32, 8, 4, not 16" in error["message"]


def test_a_checkpoint_is_compressed_to_few_bits_by_the_command(
    server: Server, study: dict[str, Any], tmp_path: Path
) -> None:
    """Of a rounded checkpoint, which the original's numbers of 32 bits are made of."""
    trial = next(
        trial
        for trial in server.trials(study["id"])
        if trial["hyperparameters"]["model.bits"] == 8 and trial["architecture"] == "gru"
    )
    original = tmp_path / "original.safetensors"
    original.write_bytes(downloaded(server, trial["links"]["checkpoint"]))
    out = tmp_path / "out"
    words = [
        "compress",
        original,
        "--task",
        TASK.model_dump_json(),
        "--parametrization",
        "low_rank",
    ]
    words += ["--bits", 8, "--bits", 4, "--trials", 4, "--epochs", 1, "--out", out]
    ended = command(str(server.http.base_url), *words)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    newest = server.get("/v1/studies")["items"][0]
    first, *others = server.trials(newest["id"])
    assert first["origin"] == "original"
    assert first["values"]["quality"] == pytest.approx(trial["values"]["quality"], abs=0.02)
    assert {one["hyperparameters"]["model.bits"] for one in others} <= {8, 4}
    for one in others:
        loaded = load(downloaded(server, one["links"]["checkpoint"]))
        assert loaded.spec.bits == one["hyperparameters"]["model.bits"]
        report = server.get(f"{one['links']['trial']}/report")
        assert report["spec"]["bits"] == loaded.spec.bits
        assert report["conversion"]["output_error"] > 0
    refused = command(str(server.http.base_url), *words[:4], "--bits", 16)
    assert refused.returncode != 0
    assert "one of 32, 8, 4, not 16" in refused.stdout + refused.stderr
