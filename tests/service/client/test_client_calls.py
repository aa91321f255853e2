"""Every operation of the API that is not for workers has a call of the client that makes it."""

import logging
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from service.app import create_app
from service.client import Client, Refused, Unfinished
from tests.service.api.test_openapi import operations
from tests.service.listening import listening
from tests.service.model_files import plain, saved, written
from tests.service.site import SMALL_SPEC, Site
from tests.service.uploading import CSV


@dataclass(frozen=True)
class Given:
    """What the calls are made with."""

    client: Client
    study: str
    dataset: str
    model: str
    folder: Path


def pets(folder: Path) -> Path:
    file = folder / "pets.csv"
    file.write_bytes(CSV)
    return file


def gru(folder: Path) -> Path:
    return written(folder / "gru.safetensors", saved(plain()))


Call = Callable[[Given], object]

_STUDY = "/v1/studies/{study_id}"
_TRIALS = f"{_STUDY}/trials"
_TRIAL = f"{_TRIALS}/{{number}}"
_DATASET = "/v1/datasets/{dataset_id}"
_MODEL = "/v1/models/{model_id}"

CALLS: Mapping[tuple[str, str], Call] = {
    ("post", "/v1/studies"): lambda given: given.client.submit(SMALL_SPEC),
    ("get", "/v1/studies"): lambda given: list(given.client.studies()),
    ("get", _STUDY): lambda given: given.client.study(given.study),
    ("patch", _STUDY): lambda given: given.client.change_budget(given.study, trials=9),
    ("post", f"{_STUDY}/pause"): lambda given: given.client.pause(given.study),
    ("post", f"{_STUDY}/resume"): lambda given: given.client.resume(given.study),
    ("post", f"{_STUDY}/cancel"): lambda given: given.client.cancel(given.study),
    ("get", f"{_STUDY}/front"): lambda given: given.client.front(given.study),
    ("get", f"{_STUDY}/bundle"): lambda given: given.client.bundle(
        given.study, given.folder / "front.zip"
    ),
    ("get", f"{_STUDY}/importance"): lambda given: given.client.importance(given.study),
    ("get", f"{_STUDY}/hypervolume"): lambda given: given.client.hypervolume(given.study),
    ("get", f"{_STUDY}/webhooks"): lambda given: given.client.deliveries(given.study),
    ("get", f"{_STUDY}/events"): lambda given: next(given.client.watch(given.study)),
    ("get", _TRIALS): lambda given: list(given.client.trials(given.study)),
    ("post", _TRIALS): lambda given: given.client.enqueue(given.study, "rnn", "dense", patience=0),
    ("get", _TRIAL): lambda given: given.client.trial(given.study, 0),
    ("get", f"{_TRIAL}/metrics"): lambda given: given.client.metrics(given.study, 0),
    ("get", f"{_TRIAL}/checkpoint"): lambda given: given.client.download(
        given.study, 0, given.folder / "model.safetensors"
    ),
    ("get", f"{_TRIAL}/onnx"): lambda given: given.client.onnx(
        given.study, 0, given.folder / "model.onnx"
    ),
    ("get", f"{_TRIAL}/c"): lambda given: given.client.c_files(
        given.study, 0, given.folder / "pets.zip", name="pets"
    ),
    ("get", f"{_TRIAL}/dense"): lambda given: given.client.dense(
        given.study, 0, given.folder / "dense.safetensors"
    ),
    ("get", f"{_TRIAL}/onnx_stream"): lambda given: given.client.onnx_stream(
        given.study, 0, given.folder / "model.stream.onnx"
    ),
    ("get", f"{_TRIAL}/folder"): lambda given: given.client.folder(
        given.study, 0, given.folder / "trial-0.zip"
    ),
    ("get", f"{_TRIAL}/card"): lambda given: given.client.card(given.study, 0),
    ("get", f"{_TRIAL}/report"): lambda given: given.client.report(given.study, 0),
    ("post", f"{_TRIAL}/measure"): lambda given: given.client.measure(given.study, 0, patience=0),
    ("get", f"{_TRIAL}/log"): lambda given: given.client.log(given.study, 0),
    ("post", "/v1/datasets"): lambda given: given.client.upload_dataset(pets(given.folder)),
    ("get", "/v1/datasets"): lambda given: list(given.client.datasets()),
    ("get", _DATASET): lambda given: given.client.dataset(given.dataset),
    ("delete", _DATASET): lambda given: given.client.delete_dataset(given.dataset),
    ("post", "/v1/models"): lambda given: given.client.upload_model(gru(given.folder)),
    ("get", "/v1/models"): lambda given: list(given.client.models()),
    ("get", _MODEL): lambda given: given.client.model(given.model),
    ("get", f"{_MODEL}/checkpoint"): lambda given: given.client.download_model(
        given.model, given.folder / "uploaded.safetensors"
    ),
    ("delete", _MODEL): lambda given: given.client.delete_model(given.model),
    ("get", "/v1/catalog"): lambda given: given.client.catalog(),
    ("get", "/v1/papers"): lambda given: given.client.papers(),
    ("get", "/v1/papers/{table}"): lambda given: given.client.paper_table("ucr"),
    ("get", "/v1/webhooks/secret"): lambda given: given.client.webhook_secret(),
    ("get", f"{_STUDY}/report"): lambda given: given.client.study_report(given.study),
    ("get", f"{_STUDY}/figures/{{name}}"): lambda given: given.client.figure(given.study, "front"),
    ("get", "/v1/figures/compare"): lambda given: given.client.compare_figure([given.study]),
    ("get", "/v1/quota"): lambda given: given.client.quota(),
    ("get", "/v1/devices"): lambda given: given.client.devices(),
    ("get", "/v1/agents"): lambda given: given.client.machines(),
    ("post", "/v1/keys"): lambda given: given.client.create_key("laptop", "read", expires_in="9d"),
    ("post", "/v1/keys/{key_id}/rotate"): lambda given: given.client.rotate_key("000000000000"),
    ("get", "/v1/keys"): lambda given: list(given.client.keys()),
    ("delete", "/v1/keys/{key_id}"): lambda given: given.client.revoke_key("no such key"),
    ("get", "/v1/audit"): lambda given: list(given.client.audit()),
    ("get", "/metrics"): lambda given: given.client.server_metrics(),
    ("get", "/healthz"): lambda given: given.client.health(),
    ("get", "/readyz"): lambda given: given.client.readiness(),
    ("delete", _STUDY): lambda given: given.client.delete(given.study),
}
"""Operation -> the call that makes it; what ends things comes last."""


def documented(site: Site) -> set[tuple[str, str]]:
    """The operations that are not for workers."""
    document = create_app(site.settings).openapi()
    return {
        (method, path)
        for method, path, _ in operations(document)
        if not path.startswith("/v1/agents/") and (method, path) != ("post", "/v1/agents")
    }


def test_every_operation_has_a_call_of_the_client(
    site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours = documented(site)
    assert set(CALLS) == ours
    study = site.study()
    site.run(study)
    site.trial(study, 0, quality=0.5, throughput=10.0)
    caplog.set_level(logging.INFO, "uvicorn.access")
    with listening(site) as (host, port), Client(f"http://{host}:{port}") as client:
        dataset = client.upload_dataset(pets(tmp_path), name="to be deleted")
        model = client.upload_model(gru(tmp_path))
        given = Given(client, study.id, dataset.id, model.id, tmp_path)
        for (method, path), call in CALLS.items():
            caplog.clear()
            # A refusal is an answer too: whether the call is granted is not the question here.
            with suppress(Refused, Unfinished):
                call(given)
            asked = [
                (str(record.args[1]).lower(), str(record.args[2]))
                for record in caplog.records
                if record.name == "uvicorn.access" and isinstance(record.args, tuple)
            ]
            wanted = re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path)) + r"(\?.*)?")
            assert any(how == method and wanted.fullmatch(what) for how, what in asked), path


def test_calls_of_what_exists_are_granted(site: Site, tmp_path: Path) -> None:
    # An activation that torch's own layers have, so that there is a dense file.
    study = site.study(space={**SMALL_SPEC["space"], "activation": "tanh"})
    site.run(study)
    site.trial(study, 0, quality=0.5, throughput=10.0)
    reading = {call for call in CALLS if call[0] == "get"}
    # The workers and the coordinator that these two ask for are not there.
    reading -= {("get", f"{_TRIAL}/log"), ("get", "/readyz")}
    with listening(site) as (host, port), Client(f"http://{host}:{port}") as client:
        dataset = client.upload_dataset(pets(tmp_path))
        model = client.upload_model(gru(tmp_path))
        given = Given(client, study.id, dataset.id, model.id, tmp_path)
        for call in sorted(reading):
            CALLS[call](given)
