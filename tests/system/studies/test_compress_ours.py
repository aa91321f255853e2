"""Checkpoints of our own go from one study into another, and come out smaller."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models import checkpoint
from models.architectures import Mlp, Resnet
from search.tasks import DataSources, Digits
from tests.service.running import Server, command

SIZE = 12
TASK = {"kind": "digits", "train_samples": 300}
FORMS = ["low_rank", "householder", "low_rank_diagonal"]


@dataclass(frozen=True)
class Case:
    """What is trained first, and then compressed."""

    architecture: str
    parametrization: str
    space: Mapping[str, Any]
    has_torch_form: bool


CASES = {
    "structured mlp": Case("mlp", "householder_svd", {"mlp.layers": 2}, True),
    "resnet": Case("resnet", "dense", {"resnet.blocks": 1}, True),
    "highway": Case("highway", "dense", {"highway.layers": 2}, False),
    "batch-normalised highway": Case(
        "highway",
        "low_rank_diagonal",
        {"highway.layers": 2, "highway.stack": "batch_normalised"},
        False,
    ),
}


class Layers(nn.Module):
    """Linear layers of torch's own, called as the dense file of an MLP or ResNet calls them."""

    def __init__(self, architecture: Mlp | Resnet, state: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.architecture = architecture
        layers = sum(name.startswith("hidden.") for name in state) // 2
        self.input = nn.Linear(64, SIZE)
        self.hidden = nn.ModuleList(nn.Linear(SIZE, SIZE) for _ in range(layers))
        self.readout = nn.Linear(SIZE, 10)
        self.load_state_dict(dict(state))

    def forward(self, x: Tensor) -> Tensor:
        def f(x: Tensor) -> Tensor:
            assert self.architecture.activation == "leaky_relu"
            return F.leaky_relu(x, self.architecture.leak)

        x = f(self.input(x.flatten(1)))
        if isinstance(self.architecture, Resnet):
            for first, second in list(pairwise(self.hidden))[::2]:
                x = f(x + second(f(first(x))))
        else:
            for layer in self.hidden:
                x = f(layer(x))
        return self.readout(x)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Tensor:
    splits = Digits(layout="rows").load(DataSources(cache=tmp_path_factory.mktemp("digits")))
    return splits.test.x[:32]


def reflectory(server: Server, *words: object) -> tuple[Any, str]:
    """What a command that has to end well prints as JSON, and what it complains of."""
    ran = command(str(server.http.base_url), *words, "--json")
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout), ran.stderr


def trained(server: Server, case: Case) -> str:
    study = server.submit(
        {
            "task": TASK,
            "architectures": [case.architecture],
            "parametrizations": [case.parametrization],
            "space": {"hidden_size": SIZE, **case.space},
            "objectives": ["quality", "parameters"],
            "sampler": {"kind": "random"},
            "budget": {"trials": 1, "epochs": 2},
        }
    )
    assert server.wait(study)["state"] == "finished"
    return study


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name == "structured mlp" else pytest.mark.slow)
        for name in CASES
    ],
)
def test_a_checkpoint_of_one_study_is_compressed_by_the_next(
    server: Server, tmp_path: Path, images: Tensor, name: str
) -> None:
    case = CASES[name]
    first = trained(server, case)
    reflectory(server, "download", first, 0, "--out", tmp_path)
    assert (tmp_path / "trial-0" / "dense.safetensors").exists() is case.has_torch_form
    given = tmp_path / "trial-0" / "model.safetensors"
    before = checkpoint.load(given)
    model, _ = reflectory(server, "models", "upload", given)
    assert model["source"] == "reflectory"
    assert model["architecture"] == before.spec.architecture.model_dump(mode="json")
    assert bool(model["notes"]) is (case.parametrization != "dense")

    study = server.wait(
        server.submit(
            {
                "task": TASK,
                "compress": {"model": model["id"], "distillation": True},
                "parametrizations": FORMS,
                "objectives": ["quality", "parameters"],
                "sampler": {"kind": "random"},
                "budget": {"trials": 4, "epochs": 1},
                "seed": 1,
            }
        )
    )
    assert (study["state"], study["state_reason"]) == ("finished", None)
    original, *others = server.trials(study["id"])
    assert original["values"]["quality"] == server.trials(first)[0]["values"]["quality"]
    assert {trial["outcome"] for trial in others} == {"complete"}
    for trial in others:
        assert trial["values"]["parameters"] < model["parameters"]
        conversion = server.get(f"{trial['links']['trial']}/report")["conversion"]
        assert {layer["slot"] for layer in conversion["layers"]} == {"hidden"}

    out = tmp_path / "front"
    files, complaints = reflectory(server, "download", study["id"], "--out", out)
    points = server.get(f"/v1/studies/{study['id']}/front")["points"]
    assert points
    reasons = ("comes without trial-",)
    assert all(any(word in line for word in reasons) for line in complaints.splitlines())
    for point in points:
        folder = out / f"trial-{point['trial']}"
        loaded = checkpoint.load(folder / "model.safetensors")
        with torch.no_grad():
            answer = loaded.module.eval()(images)
        session = onnxruntime.InferenceSession(folder / "model.onnx")
        assert loaded.interface is not None
        raw = loaded.interface.raw(images)
        (found, *_) = session.run(None, {session.get_inputs()[0].name: raw.numpy()})
        assert isinstance(found, np.ndarray)
        torch.testing.assert_close(torch.from_numpy(found), answer, rtol=1e-3, atol=1e-4)
        dense = folder / "dense.safetensors"
        assert dense.exists() is (str(dense) in files["files"]) is case.has_torch_form
        assert (point["links"]["dense"] is not None) is case.has_torch_form
        if not case.has_torch_form:
            refusal = server.http.get(f"/v1/studies/{study['id']}/trials/{point['trial']}/dense")
            assert refusal.status_code == 422
            assert "highway has no counterpart" in refusal.json()["detail"]
            continue
        architecture = loaded.spec.architecture
        assert isinstance(architecture, Mlp | Resnet)
        with torch.no_grad():
            plain = Layers(architecture, safetensors.torch.load_file(dense))(images)
        torch.testing.assert_close(plain, answer, rtol=1e-4, atol=1e-5)
