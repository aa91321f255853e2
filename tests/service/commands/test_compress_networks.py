"""`compress` of an ONNX file on a real server: from two files to a smaller one."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from search.graphs import network_trial
from service.client import Client
from service.commands.shown.network_tables import NETWORK
from tests.search.graphs.small_networks import classifier, vectors
from tests.service.running import Server, command

EXAMPLE = Path(__file__).parents[3] / "deploy" / "examples" / "compress_network.py"
LIMIT = 6_000


@dataclass(frozen=True)
class Given:
    """A server, and what is compressed there."""

    url: str
    model: Path
    data: Path

    def compress(self, *options: object) -> subprocess.CompletedProcess[str]:
        return command(self.url, "compress", self.model, "--data", self.data, *options)


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Given]:
    folder = tmp_path_factory.mktemp("networks")
    model, data = folder / "net.onnx", folder / "samples.npz"
    model.write_bytes(classifier().SerializeToString())
    np.savez(data, x=vectors(200), short=np.zeros((200, 3), np.float32))
    server = Server(folder / "data").start()
    yield Given(str(server.http.base_url).rstrip("/"), model, data)
    server.close()


@pytest.fixture(scope="module")
def compressed(given: Given, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What the command printed, and the file that it wrote."""
    out = tmp_path_factory.mktemp("out") / "new" / "small.onnx"
    run = given.compress("--limit", "bytes=6KB", "--trials", 8, "--name", "smaller", "--out", out)
    assert run.returncode == 0, run.stderr
    return run.stdout, out


def _newest(given: Given) -> Any:
    with Client(given.url) as client:
        return next(study for study in client.studies() if study.name == "smaller")


def test_the_front_is_shown_and_a_file_within_the_limit_is_written(
    given: Given, compressed: tuple[str, Path]
) -> None:
    printed, out = compressed
    assert "times" in printed
    assert "agreement" in printed
    assert "the lowest kl within the limits" in printed
    assert "valid for data like the data given" in printed
    assert printed.splitlines()[-1] == str(out)
    assert out.stat().st_size <= LIMIT
    assert [one.name for one in onnx.load(out).graph.input] == ["x"]


def test_no_trial_is_lost_to_a_limit_that_is_known_before(
    given: Given, compressed: tuple[str, Path]
) -> None:
    study = _newest(given)
    with Client(given.url) as client:
        trials = list(client.trials(study.id))
    assert {trial.outcome for trial in trials} == {"complete"}
    assert len(trials) == 8
    assert all((trial.values["bytes"] or 0) <= LIMIT for trial in trials[1:])


def test_results_are_shown_by_layer(given: Given, compressed: tuple[str, Path]) -> None:
    study = _newest(given).id
    with Client(given.url) as client:
        chosen = client.choose_file(study)
    assert chosen is not None
    report = command(given.url, "report", study, chosen.trial)
    assert report.returncode == 0, report.stderr
    for word in ("w1", "w2", "MatMul", "40 × 48", "agreement", "choosing part", "test part"):
        assert word in report.stdout
    as_json = json.loads(command(given.url, "report", study, chosen.trial, "--json").stdout)
    assert {layer["name"] for layer in as_json["layers"]} == {"w1", "w2"}
    front = command(given.url, "front", study)
    assert "smaller" in front.stdout
    trial = command(given.url, "trials", study, chosen.trial)
    assert "Learning curve" not in trial.stdout
    assert command(given.url, "report", study, 1, "--out", "x.html").returncode == 2


def test_a_trial_is_downloaded_as_a_folder(
    given: Given, compressed: tuple[str, Path], tmp_path: Path
) -> None:
    run = command(given.url, "download", _newest(given).id, "--out", tmp_path)
    assert run.returncode == 0, run.stderr
    assert "has no checkpoint" not in run.stderr
    assert [*tmp_path.glob("trial-*/model.onnx")]
    assert [*tmp_path.glob("trial-*/report.json")]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--input", "x=nope"), "--input x: the data have no array 'nope'"),
        (("--input", "x=short"), "--input x: the array is [200, 3]"),
        (("--input", "q=x"), "--input q: the network has none of this name"),
        (("--output", "z"), "--output z: the network has none of this name"),
        (("--zeros", "z"), "--zeros z: the network has none of this name"),
        (("--labels", "classes"), "--labels: the data have no array 'classes'"),
        (("--metric", "nonsense"), "--metric: unknown kind 'nonsense'"),
        (("--objective", "speed"), "--objective: Input should be"),
        (("--limit", "agreement=2"), "--limit agreement: Input should be less than"),
    ],
)
def test_a_refusal_stands_at_its_option(given: Given, options: tuple[str, ...], told: str) -> None:
    run = given.compress(*options, "--no-wait")
    assert run.returncode == 3
    assert told in run.stderr


def test_a_refusal_for_programs_names_the_part_of_the_document(given: Given) -> None:
    run = given.compress("--output", "z", "--json")
    assert run.returncode == 3
    (fault,) = json.loads(run.stderr)["errors"]
    assert fault["path"] == "task.outputs.z"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--task", "digits"), "--task"),
        (("--epochs", "3"), "--epochs"),
        (("--fixed", "x=fast"), "x=fast has no number"),
    ],
)
def test_options_of_other_files_are_wrong_usage(
    given: Given, options: tuple[str, ...], told: str
) -> None:
    run = given.compress(*options)
    assert run.returncode == 2
    assert told in run.stderr


def test_data_and_task_are_asked_for_by_the_file(given: Given, tmp_path: Path) -> None:
    assert "--data" in command(given.url, "compress", given.model).stderr
    other = tmp_path / "gru.safetensors"
    other.write_bytes(b"none")
    assert "--task" in command(given.url, "compress", other).stderr
    damaged = tmp_path / "damaged.onnx"
    damaged.write_bytes(b"hello")
    run = command(given.url, "compress", damaged, "--data", given.data)
    assert run.returncode == 3
    assert "CHECKPOINT" in run.stderr


def test_without_waiting_only_the_study_is_told(given: Given) -> None:
    run = given.compress("--no-wait", "--trials", 2, "--limit", "agreement=99%", "--json")
    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout)
    assert told["files"] == []
    with Client(given.url) as client:
        spec = client.study(told["study"]).spec
        client.cancel(told["study"])
    assert spec["limits"]["agreement"] == 0.99
    assert spec["task"]["model"] == told["model"]


@pytest.mark.slow
def test_the_example_goes_from_torch_to_a_smaller_file(given: Given, tmp_path: Path) -> None:
    out = tmp_path / "small.onnx"
    run = subprocess.run(
        [sys.executable, str(EXAMPLE), given.url, str(out), "--trials", "4"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "on the test part: kl" in run.stdout
    assert onnx.load(out).graph.output[0].name == "y"


def test_the_terminal_tells_networks_by_the_word_that_the_search_has() -> None:
    assert NETWORK == network_trial.NETWORK
