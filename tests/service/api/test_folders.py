"""The folder of a trial over HTTP: made when it is asked for, the same each time, and runnable."""

import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from models.checkpoint import INTERFACE, save_bytes
from search.documents.export_kinds import CHECKPOINT, SAMPLES
from search.studies.spec import StudySpec
from search.training.trial_spec import TrialSpec
from service.app import create_app
from storage.records import StudyRecord, TrialState
from storage.repositories.artifact_rows import ArtifactRows
from storage.repositories.trials import Trials
from tests.service.running import wait_until
from tests.service.site import Site

ALWAYS = {"model.safetensors", "MODEL_CARD.md", "VERIFIED.json", "report.json", "report.html"}


@contextmanager
def asked(site: Site, **settings: Any) -> Iterator[TestClient]:
    changed = site.settings.model_copy(update=settings)
    with TestClient(create_app(changed), base_url="http://localhost:8080") as client:
        yield client


def path_of(study: StudyRecord, number: int = 0) -> str:
    return f"/v1/studies/{study.id}/trials/{number}"


def as_trained_now(site: Site, study: StudyRecord, number: int) -> None:
    """Store what a worker stores: what stands around the network, and raw samples."""
    task = StudySpec.model_validate(study.spec).trained_task
    with site.database.read() as session:
        model = TrialSpec.model_validate(Trials(session).get(study.id, number).spec).model
    interface = task.interface(site.sources).model_dump_json()
    checkpoint = save_bytes(model.build(seed=1), model, extra={INTERFACE: interface})
    samples = task.raw_samples(site.sources).between(0, 40).to_bytes()
    with site.database.write() as session:
        for role, content in ((CHECKPOINT, checkpoint), (SAMPLES, samples)):
            ArtifactRows(session).link(study.id, number, role, site.keep(content))


@pytest.fixture
def study(site: Site) -> StudyRecord:
    study = site.study()
    for number in (0, 1):
        site.trial(study, number, quality=0.5 + number, throughput=10.0 - number)
    as_trained_now(site, study, 0)
    return study


def test_a_folder_is_whole_and_its_example_runs(
    site: Site, study: StudyRecord, tmp_path: Path
) -> None:
    with asked(site, export_wait_seconds=300.0) as client:
        answer = client.get(f"{path_of(study)}/folder")
        assert (answer.status_code, answer.headers["content-type"]) == (200, "application/zip")
        again = client.get(f"{path_of(study)}/folder")
        assert again.content == answer.content
        tag = again.headers["etag"]
        unchanged = client.get(f"{path_of(study)}/folder", headers={"If-None-Match": tag})
        assert (unchanged.status_code, unchanged.content) == (304, b"")
        card = client.get(f"{path_of(study)}/card")
        trial = client.get(path_of(study)).json()
        point = client.get(f"/v1/studies/{study.id}/front").json()["points"][0]
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.testzip() is None
        archive.extractall(tmp_path)
    folder = tmp_path / "trial-0"
    files = {path.name for path in folder.iterdir()}
    assert {
        *ALWAYS,
        *("model.onnx", "model.stream.onnx", "dense.safetensors", "initial_state.json"),
        *("samples.json", "labels.json", "preprocessing.json", "example.py"),
    } <= files
    assert (folder / "MODEL_CARD.md").read_text() == card.text
    ran = subprocess.run(
        [sys.executable, "-I", "example.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={},
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count("as in samples.json") == 3
    for document in (trial, point):
        assert document["bytes"]["onnx"] == (folder / "model.onnx").stat().st_size
        assert document["bytes"]["checkpoint"] == (folder / "model.safetensors").stat().st_size
        for kind in ("onnx", "onnx_stream", "dense", "checkpoint"):
            assert (document["links"][kind] is None) is (kind in document["missing"])
    verified = json.loads((folder / "VERIFIED.json").read_text())
    assert set(verified["files"]) == files - {"VERIFIED.json"}


def test_who_cannot_wait_is_told_when_to_ask_again(site: Site, study: StudyRecord) -> None:
    with asked(site, export_wait_seconds=0.0) as client:
        first = client.get(f"{path_of(study)}/folder")
        assert first.status_code == 202
        assert int(first.headers["retry-after"]) >= 1
        wait_until(
            lambda: client.get(f"{path_of(study)}/folder").status_code == 200, what="the folder"
        )


def test_a_trial_that_kept_no_samples_says_so_everywhere(site: Site, study: StudyRecord) -> None:
    with asked(site, export_wait_seconds=300.0) as client:
        answer = client.get(f"{path_of(study, 1)}/folder")
        missing = client.get(path_of(study, 1)).json()["missing"]
        page = client.get(f"/studies/{study.id}/trials/1").text
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        told = {one["file"]: one for one in json.loads(archive.read("missing.json"))["missing"]}
        card = archive.read("trial-1/MODEL_CARD.md").decode()
        assert "trial-1/example.py" not in archive.namelist()
    reason = told["trial-1/samples.json"]["reason"]
    assert missing["example"] == reason
    assert f"- `samples.json`: {reason}" in card
    assert reason in page
    assert not told["trial-1/samples.json"]["lost"]


def test_there_is_no_folder_before_the_end(site: Site, study: StudyRecord) -> None:
    site.trial(study, 2, state=TrialState.RUNNING)
    with asked(site) as client:
        refused = client.get(f"{path_of(study, 2)}/folder")
        assert refused.status_code == 409
        assert "running" in refused.json()["detail"]
        assert client.get(f"{path_of(study, 9)}/folder").status_code == 404
