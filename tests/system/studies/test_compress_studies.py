"""Trained networks go in as torch has them, and smaller ones come out, over HTTP."""

import csv
import io
import json
import signal
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import safetensors.torch
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

from models import checkpoint
from search.tasks import DataSources, Digits
from service.cli import application
from tests.service.model_files import Plain
from tests.service.running import Server, command, wait_until

ROWS = Digits(layout="rows")
TRIALS = 5
SPACE = {"training.learning_rate": {"low": 1e-3, "high": 5e-3, "log": True}}


LAYERS: dict[str, type[nn.LSTM | nn.GRU]] = {"lstm": nn.LSTM, "gru": nn.GRU}
GRU = pytest.mark.parametrize("compressed", ["gru"], indirect=True)


@dataclass(frozen=True)
class Compressed:
    """A study of a network that torch alone has trained."""

    module: Plain
    content: bytes
    model: str
    spec: dict[str, Any]
    study: dict[str, Any]

    def untrained(self) -> Plain:
        """The same layers with other numbers."""
        layer = nn.LSTM if isinstance(self.module.rnn, nn.LSTM) else nn.GRU
        return Plain(layer(8, 12, batch_first=True), outputs=10)

    @property
    def path(self) -> str:
        return f"/v1/studies/{self.study['id']}"


@pytest.fixture(scope="module")
def splits(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return ROWS.load(DataSources(cache=tmp_path_factory.mktemp("digits")))


def trained(layer: nn.RNNBase, splits: Any) -> Plain:
    """A network of torch's own layers after a few epochs of torch's own training."""
    torch.manual_seed(0)
    module = Plain(layer, outputs=10)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.02)
    for epoch in range(4):
        for named in splits.train.batches(64, torch.Generator().manual_seed(epoch)):
            batch = splits.train.take(named)
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(batch.x), batch.y).backward()
            optimizer.step()
    return module.eval()


def accuracy(module: nn.Module, split: Any) -> float:
    with torch.no_grad():
        return float((module(split.x).argmax(-1) == split.y).float().mean())


def upload(server: Server, content: bytes) -> str:
    answer = server.http.post("/v1/models", files={"file": ("model.safetensors", content)})
    assert answer.status_code in (200, 201), answer.text
    return str(answer.json()["id"])


@pytest.fixture(scope="module", params=["lstm", "gru"])
def compressed(request: pytest.FixtureRequest, server: Server, splits: Any) -> Compressed:
    torch.manual_seed(1)
    module = trained(LAYERS[request.param](8, 12, batch_first=True), splits)
    content = safetensors.torch.save(module.state_dict())
    model = upload(server, content)
    spec: dict[str, Any] = {
        "task": ROWS.model_dump(mode="json"),
        "compress": {"model": model, "distillation": request.param == "gru"},
        "parametrizations": ["low_rank", "householder_svd"],
        "space": SPACE,
        "objectives": ["quality", "parameters"],
        "sampler": {"kind": "random"},
        "budget": {"trials": TRIALS, "epochs": 2},
        "seed": 2,
    }
    study = server.wait(server.submit(spec))
    assert (study["state"], study["state_reason"]) == ("finished", None)
    return Compressed(module, content, model, spec, study)


def downloaded(server: Server, path: str) -> bytes:
    def there() -> bytes | None:
        answer = server.http.get(path)
        assert answer.status_code in (200, 202), answer.text
        return answer.content if answer.status_code == 200 else None

    return wait_until(there, what=path)


def test_the_original_is_trial_0_as_it_was_uploaded(
    server: Server, compressed: Compressed, splits: Any
) -> None:
    original, *others = server.trials(compressed.study["id"])
    assert (original["number"], original["origin"]) == (0, "original")
    assert {trial["origin"] for trial in others} == {"sampler"}
    assert original["values"]["quality"] == pytest.approx(
        accuracy(compressed.module, splits.validation)
    )
    assert original["test_quality"] == pytest.approx(accuracy(compressed.module, splits.test))
    assert (original["best_epoch"], original["epochs_trained"]) == (0, 0)
    curve = server.get(f"{compressed.path}/trials/0/metrics")
    assert [row["epoch"] for row in curve] == [0]
    front = server.get(f"{compressed.path}/front")
    told = front["original"]
    assert (told["trial"], told["model"]) == (0, compressed.model)
    # Measured although throughput is no objective, and wherever it stands.
    assert told["values"]["throughput"] > 0
    assert told["values"] == original["values"]
    assert told["on_front"] == (0 in [point["trial"] for point in front["points"]])
    for page in (f"/studies/{compressed.study['id']}", f"{compressed.path}/report"):
        text = server.http.get(page).text
        assert "The original, " in text
        assert ("it is not on the front" in text) is not told["on_front"]
    assert (
        "None: this is the original"
        in server.http.get(f"/studies/{compressed.study['id']}/trials/0").text
    )
    report = server.get(f"{compressed.path}/trials/0/report")
    assert (report["original"], report["conversion"]) == (True, None)
    kept = server.http.get(f"{compressed.path}/trials/0/report?format=html").text
    assert "None: this is the original" in kept
    page = server.http.get(f"/studies/{compressed.study['id']}").text
    assert f'the model <a href="/models/{compressed.model}">' in page


def test_every_other_trial_begins_with_its_conversion(
    server: Server, compressed: Compressed
) -> None:
    trials = server.trials(compressed.study["id"])[1:]
    assert compressed.study["progress"]["epochs_trained"] == sum(
        trial["epochs_trained"] for trial in trials
    )
    for trial in trials:
        path = trial["links"]["trial"]
        curve = server.get(f"{path}/metrics")
        assert [row["epoch"] for row in curve] == [0, 1, 2]
        assert [row["train_loss"] is None for row in curve] == [True, False, False]
        best = max(row["validation"] for row in curve)
        assert trial["values"]["quality"] == best
        assert curve[trial["best_epoch"]]["validation"] == best
        report = server.get(f"{path}/report")
        lost = report["conversion"]
        assert report["original"] is False
        page = server.http.get(f"/studies/{compressed.study['id']}/trials/{trial['number']}").text
        for text in ("Weight error", f"/models/{compressed.model}", f"{lost['output_error']:.4f}"):
            assert text in page
        assert lost["parameters_after"] == trial["values"]["parameters"]
        assert 0 < lost["output_error"] < 2
        (layer,) = lost["layers"]
        assert (layer["slot"], layer["layer"]) == ("recurrent", 0)
        gates = layer["shape"][0]
        assert layer["parameters_before"] == gates * 12 * 12
        assert 0 < layer["weight_error"] <= 1.5
        assert len(layer["gate_errors"]) == gates
        rows = csv.DictReader(io.StringIO(server.http.get(f"{path}/report?format=csv").text))
        (row,) = [row for row in rows if row["level"] == "conversion"]
        assert float(row["weight_error"]) == layer["weight_error"]
        assert "Weight error" in server.http.get(f"{path}/report?format=html").text


def test_dense_files_load_into_torch_and_answer_as_the_checkpoints(
    server: Server, compressed: Compressed, splits: Any
) -> None:
    x = splits.test.x[:64]
    for point in server.get(f"{compressed.path}/front")["points"]:
        path = f"{compressed.path}/trials/{point['trial']}"
        with torch.no_grad():
            loaded = checkpoint.load(downloaded(server, f"{path}/checkpoint"))
            answer = loaded.module.eval()(x)
        state = safetensors.torch.load(downloaded(server, point["links"]["dense"]))
        plain = compressed.untrained()
        plain.load_state_dict(state)
        with torch.no_grad():
            torch.testing.assert_close(plain(x), answer, rtol=1e-4, atol=1e-5)
        session = onnxruntime.InferenceSession(downloaded(server, f"{path}/onnx"))
        (given,) = session.get_inputs()
        assert loaded.interface is not None
        (found, *_) = session.run(None, {given.name: loaded.interface.raw(x).numpy()})
        assert isinstance(found, np.ndarray)
        torch.testing.assert_close(torch.from_numpy(found), answer, rtol=1e-3, atol=1e-4)


def test_the_original_comes_back_as_it_went_in(server: Server, compressed: Compressed) -> None:
    state = safetensors.torch.load(downloaded(server, f"{compressed.path}/trials/0/dense"))
    x = torch.linspace(-1, 1, 3 * 8 * 8).view(3, 8, 8)
    plain = compressed.untrained()
    plain.load_state_dict(state)
    with torch.no_grad():
        torch.testing.assert_close(plain(x), compressed.module(x), rtol=1e-5, atol=1e-6)


def test_the_bundle_has_every_form(server: Server, compressed: Compressed) -> None:
    points = [point["trial"] for point in server.get(f"{compressed.path}/front")["points"]]
    for number in points:
        downloaded(server, f"{compressed.path}/trials/{number}/dense")
        downloaded(server, f"{compressed.path}/trials/{number}/onnx")
    content = server.http.get(f"{compressed.path}/bundle").content
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.testzip() is None
        names = set(archive.namelist())
    for number in points:
        kinds = ["model.safetensors", "dense.safetensors", "model.onnx"]
        assert {f"trial-{number}/{kind}" for kind in kinds} <= names


@GRU
def test_a_conversion_that_loses_nothing_is_not_trained_away(
    server: Server, compressed: Compressed, splits: Any
) -> None:
    """At the full rank the zero-shot point is the original; a wild rate then only harms."""
    spec = {
        **compressed.spec,
        "parametrizations": ["low_rank"],
        "space": {"low_rank.d": 12, "training.learning_rate": 1.0, "training.optimizer": "sgd"},
        "budget": {"trials": 2, "epochs": 1},
    }
    study = server.wait(server.submit(spec))
    original, exact = server.trials(study["id"])
    (layer,) = server.get(f"{exact['links']['trial']}/report")["conversion"]["layers"]
    assert layer["weight_error"] < 1e-5
    curve = server.get(f"{exact['links']['trial']}/metrics")
    assert curve[0]["validation"] == original["values"]["quality"]
    assert exact["values"]["quality"] == original["values"]["quality"]
    assert exact["best_epoch"] == 0
    x: Tensor = splits.test.x[:32]
    content = downloaded(server, exact["links"]["checkpoint"])
    with torch.no_grad():
        found = checkpoint.load(content).module.eval()(x)
        torch.testing.assert_close(found, compressed.module(x), rtol=1e-3, atol=1e-4)


@GRU
def test_an_original_over_the_limits_is_measured_and_on_no_front(
    server: Server, compressed: Compressed
) -> None:
    spec = {
        **compressed.spec,
        "limits": {"parameters": 700},
        "budget": {"trials": 3, "epochs": 1},
    }
    assert server.get(f"/v1/models/{compressed.model}")["parameters"] > 700
    study = server.wait(server.submit(spec))
    front = server.get(f"/v1/studies/{study['id']}/front")
    assert front["original"]["on_front"] is False
    assert front["original"]["values"]["quality"] is not None
    assert front["points"]
    assert all(point["values"]["parameters"] <= 700 for point in front["points"])


@GRU
def test_an_original_is_over_a_limit_that_asks_for_more_speed_than_its_own(
    server: Server, compressed: Compressed
) -> None:
    spec = {
        **compressed.spec,
        "limits": {"min_throughput_ratio": 1.1},
        "budget": {"trials": 1, "epochs": 1},
    }
    study = server.wait(server.submit(spec))
    front = server.get(f"/v1/studies/{study['id']}/front")
    assert front["points"] == []
    assert front["original"]["on_front"] is False
    assert front["original"]["values"]["quality"] is not None


@pytest.mark.slow
@GRU
def test_a_killed_server_goes_on_to_the_same_numbers(
    server: Server, compressed: Compressed, tmp_path: Path
) -> None:
    other = Server(tmp_path / "data")
    try:
        other.start()
        compress = {**compressed.spec["compress"], "model": upload(other, compressed.content)}
        study = other.submit({**compressed.spec, "compress": compress})
        wait_until(
            lambda: any(trial["epochs_trained"] for trial in other.trials(study)),
            what="an epoch of a compressed trial",
        )
        other.kill_everything()
        other.start()
        assert other.wait(study)["state"] == "finished"
        again = numbers(other.trials(study))
    finally:
        other.close()
    assert again == numbers(server.trials(compressed.study["id"]))


def numbers(trials: list[dict[str, Any]]) -> list[Any]:
    """What a study found, but for times, files and what was measured on a machine at work."""
    names = ("number", "hyperparameters", "test_quality", "best_epoch", "origin")
    return [
        [
            trial["values"]["quality"],
            trial["values"]["parameters"],
            *(trial[name] for name in names),
        ]
        for trial in trials
    ]


@GRU
def test_one_command_goes_from_a_file_to_files(
    server: Server, compressed: Compressed, tmp_path: Path, splits: Any
) -> None:
    given, out = tmp_path / "my gru.safetensors", tmp_path / "small"
    given.write_bytes(compressed.content)
    words = ["compress", str(given), "--task", "digits"]
    words += ["--parametrization", "low_rank", "--limit", "parameters=800", "--distill"]
    words += ["--trials", "3", "--epochs", "1", "--out", str(out)]
    ran = command(str(server.http.base_url), *words)
    assert ran.returncode == 0, ran.stderr
    assert "trial 0 complete, gru dense" in ran.stdout
    assert "The original, trial 0: accuracy" in ran.stdout
    assert "measured with matrices as stored" in " ".join(ran.stdout.split())
    study = server.get("/v1/studies")["items"][0]
    assert study["spec"]["task"]["layout"] == "rows"
    assert study["spec"]["limits"]["parameters"] == 800
    assert study["spec"]["compress"] | {"facts": None} == {
        "model": compressed.model,
        "layers": "shared",
        "distillation": True,
        "calibration_samples": 256,
        "facts": None,
    }
    points = server.get(f"/v1/studies/{study['id']}/front")["points"]
    assert points
    for point in points:
        folder = out / f"trial-{point['trial']}"
        files = ("model.safetensors", "report.json", "report.csv", "report.html", "model.onnx")
        for file in files:
            assert (folder / file).stat().st_size > 0
            assert str(folder / file) in ran.stdout
        plain = Plain(nn.GRU(8, 12, batch_first=True), outputs=10)
        plain.load_state_dict(safetensors.torch.load_file(folder / "dense.safetensors"))
        assert accuracy(plain, splits.validation) == pytest.approx(point["values"]["quality"])


@GRU
def test_a_command_that_found_nothing_smaller_is_no_success(
    server: Server, compressed: Compressed, tmp_path: Path
) -> None:
    given = tmp_path / "gru.safetensors"
    given.write_bytes(compressed.content)
    words = ["compress", str(given), "--task", "digits"]
    words += ["--parametrization", "low_rank", "--limit", "multiply_adds=1", "--json"]
    words += ["--trials", "1", "--epochs", "1", "--out", str(tmp_path / "out")]
    ran = command(str(server.http.base_url), *words)
    assert ran.returncode == 1, ran.stderr
    assert "no trial is on the front" in ran.stderr
    told = json.loads(ran.stdout.splitlines()[-1])
    assert told["model"] == compressed.model
    assert told["files"] == [str(tmp_path / "out" / "front.csv")]


@GRU
def test_an_interrupted_command_leaves_its_study_running(
    server: Server, compressed: Compressed, tmp_path: Path
) -> None:
    given = tmp_path / "gru.safetensors"
    given.write_bytes(compressed.content)
    command = [sys.executable, "-m", "service.cli", "compress", str(given), "--task", "digits"]
    command += ["--trials", "500", "--out", str(tmp_path / "out")]
    with subprocess.Popen(
        [*command, "--server", str(server.http.base_url)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        while "study running" not in process.stdout.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        errors = process.stderr.read()
        assert process.wait(600) == 130
    (study,) = [one for one in server.get("/v1/studies")["items"] if one["state"] == "running"]
    assert f"reflectory watch {study['id']}" in errors
    assert f"reflectory cancel {study['id']}" in errors
    assert "Traceback" not in errors
    assert not (tmp_path / "out").exists()
    server.http.post(f"/v1/studies/{study['id']}/cancel")
    server.wait(study["id"])


def test_the_command_says_what_was_wrong_with_its_words(tmp_path: Path) -> None:
    given = tmp_path / "model.safetensors"
    given.write_bytes(b"")
    for words, told in (
        (["--task", "digits", "--limit", "parameters"], "names no number"),
        (["--task", "{digits"], "no JSON"),
    ):
        result = CliRunner().invoke(application, ["compress", str(given), *words])
        assert result.exit_code == 2, result.output
        assert told in result.output
