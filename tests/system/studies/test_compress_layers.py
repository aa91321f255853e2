"""Studies that compress a deep network with counts of its own for each layer, over HTTP."""

import io
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import safetensors.torch
import torch
from starlette.testclient import TestClient
from torch import nn

from models import checkpoint
from models.compression.parts import structured_parts
from models.model import ModelSpec
from models.parametrizations import PerLayer
from search.errors import SpecRefused
from search.studies.named_trials import NamedTrial, enqueue
from search.tasks import DataSources
from tests.service.model_files import Plain, plain, saved, upload_model
from tests.service.running import Server, command
from tests.service.site import Site
from tests.system.studies.test_compress_studies import ROWS, downloaded, trained, upload

DIGITS = {"kind": "digits", "layout": "rows"}


def asked(client: TestClient, **given: Any) -> Any:
    """A study of a GRU of two layers, drawn layer by layer."""
    model = upload_model(client, saved(plain(nn.GRU, outputs=10, num_layers=2))).json()["id"]
    spec = {"task": DIGITS, "compress": {"model": model, "layers": "each"}, **given}
    return client.post("/v1/studies", json=spec)


def faults(site: Site, study: str, hyperparameters: dict[str, Any]) -> dict[str, str]:
    """What is wrong with a trial that is asked for, by its places; nothing where it is accepted."""
    named = NamedTrial(
        architecture="gru", parametrization="low_rank", hyperparameters=hyperparameters
    )
    try:
        enqueue(site.database, study, named)
    except SpecRefused as error:
        return {fault.path: fault.message for fault in error.faults}
    return {}


def test_a_named_trial_names_layers_or_all_of_them(client: TestClient, site: Site) -> None:
    space = {"low_rank.d": {"low": 1, "high": 6}}
    study = asked(client, parametrizations=["low_rank"], space=space).json()["id"]
    for accepted in (
        {"low_rank.0.d": 1, "low_rank.1.d": 2},
        {"low_rank.1.d": 2},
        {"low_rank.d": 2},
        {"d": 1},
        {"d": 1, "low_rank.0.d": 2},
    ):
        assert faults(site, study, accepted) == {}
    found = faults(site, study, {"low_rank.2.d": 1})
    assert "low_rank.0.d, low_rank.1.d" in found["hyperparameters.low_rank.2.d"]
    found = faults(site, study, {"low_rank.1.d": 7})
    assert "7 is not in the study's space" in found["hyperparameters.low_rank.1.d"]
    found = faults(site, study, {"d": 2, "low_rank.0.d": 1, "low_rank.1.d": 1})
    assert "2 is not 1" in found["hyperparameters.d"]


def test_refusals_come_with_the_names_that_are_allowed(client: TestClient) -> None:
    answer = asked(client, parametrizations=["low_rank"], space={"low_rank.2.d": 1})
    assert answer.status_code == 422
    (fault,) = answer.json()["errors"]
    assert fault["path"] == "space.low_rank.2.d"
    assert "did you mean 'low_rank.1.d'?" in fault["message"]
    assert "low_rank.0.d" in fault["message"]
    model = upload_model(client, saved(plain(nn.GRU, outputs=10))).json()["id"]
    spec = {"task": DIGITS, "compress": {"model": model, "layers": "all"}}
    answer = client.post("/v1/studies", json=spec)
    assert answer.status_code == 422
    (fault,) = answer.json()["errors"]
    assert fault["path"] == "compress.layers"
    assert "'shared' or 'each'" in fault["message"]


@dataclass(frozen=True)
class Deep:
    """A study of an LSTM of two layers that torch alone has trained."""

    content: bytes
    study: dict[str, Any]
    front: dict[str, Any]
    trials: list[dict[str, Any]]


@pytest.fixture(scope="module")
def splits(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return ROWS.load(DataSources(cache=tmp_path_factory.mktemp("digits")))


@pytest.fixture(scope="module")
def deep(server: Server, splits: Any) -> Deep:
    torch.manual_seed(1)
    module = trained(nn.LSTM(8, 12, 2, batch_first=True), splits)
    content = safetensors.torch.save(module.state_dict())
    spec: dict[str, Any] = {
        "task": ROWS.model_dump(mode="json"),
        "compress": {"model": upload(server, content), "layers": "each"},
        "parametrizations": ["low_rank", "low_rank_diagonal"],
        "space": {
            "training.learning_rate": {"low": 1e-3, "high": 5e-3, "log": True},
            "low_rank.0.d": {"low": 1, "high": 2},
            "low_rank.1.d": {"low": 3, "high": 5},
            "low_rank_diagonal.1.d": {"low": 2, "high": 4},
            "low_rank_diagonal.d": 1,
        },
        "objectives": ["quality", "parameters"],
        "budget": {"trials": 6, "epochs": 1},
        "seed": 3,
    }
    study = server.wait(server.submit(spec))
    assert (study["state"], study["state_reason"]) == ("finished", None)
    path = f"/v1/studies/{study['id']}"
    return Deep(content, study, server.get(f"{path}/front"), server.trials(study["id"]))


def counts(trial: dict[str, Any]) -> list[list[Any]]:
    """What each layer has of the trial's family."""
    kind, own = trial["parametrization"], trial["hyperparameters"]
    return [
        [value for name, value in sorted(own.items()) if name.startswith(f"{kind}.{layer}.")]
        for layer in (0, 1)
    ]


def test_points_of_the_front_have_other_counts_in_each_layer(server: Server, deep: Deep) -> None:
    original, *others = deep.trials
    assert original["parametrization"] == "dense"
    assert {trial["parametrization"] for trial in others} <= {"low_rank", "low_rank_diagonal"}
    points = [point for point in deep.front["points"] if point["trial"]]
    assert points
    assert all(counts(point)[0] < counts(point)[1] for point in points)
    assert len({str(counts(trial)) for trial in others}) > 1
    for point in points:
        path = f"/v1/studies/{deep.study['id']}/trials/{point['trial']}"
        layers = server.get(f"{path}/report")["conversion"]["layers"]
        assert [layer["layer"] for layer in layers] == [0, 1]
        loaded = checkpoint.load(downloaded(server, f"{path}/checkpoint"))
        parametrization = loaded.spec.parametrization
        assert isinstance(parametrization, PerLayer)
        assert parametrization.family == point["parametrization"]
        stored = structured_parts(loaded.module)["recurrent"].members
        assert [layer["parameters_after"] for layer in layers] == [
            sum(p.numel() for p in member.parameters()) for member in stored
        ]


def test_every_form_of_a_point_answers_alike(server: Server, deep: Deep, splits: Any) -> None:
    x = splits.test.x[:32]
    for point in (point for point in deep.front["points"] if point["trial"]):
        path = f"/v1/studies/{deep.study['id']}/trials/{point['trial']}"
        with torch.no_grad():
            answer = checkpoint.load(downloaded(server, f"{path}/checkpoint")).module.eval()(x)
            torch_alone = Plain(nn.LSTM(8, 12, 2, batch_first=True), outputs=10)
            torch_alone.load_state_dict(
                safetensors.torch.load(downloaded(server, point["links"]["dense"]))
            )
            torch.testing.assert_close(torch_alone(x), answer, rtol=1e-4, atol=1e-5)
        session = onnxruntime.InferenceSession(downloaded(server, f"{path}/onnx"))
        (given,) = session.get_inputs()
        raw = 16 * x.flatten(1)  # as the digits come: 64 numbers of 0..16
        (found, *_) = session.run(None, {given.name: raw.numpy()})
        assert isinstance(found, np.ndarray)
        torch.testing.assert_close(torch.from_numpy(found), answer, rtol=1e-3, atol=1e-4)


def test_tables_pages_and_files_name_the_family_and_each_layers_counts(
    server: Server, deep: Deep
) -> None:
    path = f"/v1/studies/{deep.study['id']}"
    point = next(point for point in deep.front["points"] if point["trial"])
    names = [name for name in point["hyperparameters"] if name.split(".")[1] in "01"]
    page = server.http.get(f"/studies/{deep.study['id']}/trials/{point['trial']}").text
    head = server.http.get(f"{path}/front?format=csv").text.splitlines()[0].split(",")
    listed = server.http.get(f"{path}/trials?format=csv").text
    for name in names:
        assert name in page
        assert name in head
    for text in (page, listed, server.http.get(f"/studies/{deep.study['id']}").text):
        assert point["parametrization"] in text
        assert "per_layer" not in text
    found = {
        one["dimension"]
        for objective in server.get(f"{path}/importance")["objectives"]
        for one in objective["dimensions"]
    }
    assert not found or {name.split(".")[1] for name in found if name.count(".") == 2} == {"0", "1"}
    content = server.http.get(f"{path}/bundle").content
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert f"trial-{point['trial']}/model.safetensors" in archive.namelist()


def test_a_point_is_compressed_again_as_an_original(
    server: Server, deep: Deep, tmp_path: Path
) -> None:
    """Its layers become plain ones; the command draws each apart, and ends with files."""
    point = next(point for point in deep.front["points"] if point["trial"])
    number, out = point["trial"], tmp_path / "small"
    path = f"/v1/studies/{deep.study['id']}/trials/{number}/checkpoint"
    given = tmp_path / "point.safetensors"
    given.write_bytes(downloaded(server, path))
    words = ["compress", str(given), "--task", "digits"]
    words += ["--parametrization", "low_rank", "--layers", "each"]
    words += ["--trials", "2", "--epochs", "1", "--out", str(out)]
    ran = command(str(server.http.base_url), *words)
    assert ran.returncode == 0, ran.stderr
    study = server.get("/v1/studies")["items"][0]
    assert study["spec"]["compress"]["layers"] == "each"
    model = server.get(f"/v1/models/{study['spec']['compress']['model']}")
    kind = point["parametrization"]
    assert f"matrices stored as {kind} became plain ones" in model["notes"]
    _, trial = server.trials(study["id"])
    assert {"low_rank.0.d", "low_rank.1.d"} <= trial["hyperparameters"].keys()
    spec = ModelSpec.model_validate(
        server.get(f"/v1/studies/{study['id']}/trials/1/report")["spec"]
    )
    assert isinstance(spec.parametrization, PerLayer)
    assert list(out.glob("trial-*/model.safetensors"))
