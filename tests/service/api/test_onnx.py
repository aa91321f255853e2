"""ONNX files of trials: made on the first request, once, verified, and whole."""

import io
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import onnx
import onnxruntime
import pytest
import torch
from starlette.testclient import TestClient

from models import checkpoint
from search.documents.export_kinds import ONNX
from service.api.trials.exports import LONGEST_QUEUE, Exports
from service.app import create_app
from service.client import Client, Unfinished
from storage.blobs.folder import LocalArtifactStore
from storage.errors import NotFound
from storage.records import StudyRecord, TrialState
from storage.repositories.artifact_rows import ArtifactRows
from tests.service.listening import listening
from tests.service.running import wait_until
from tests.service.site import Site, sha256


def path_of(study: StudyRecord, number: int = 0) -> str:
    return f"/v1/studies/{study.id}/trials/{number}/onnx"


@contextmanager
def asked(site: Site, **settings: Any) -> Iterator[TestClient]:
    changed = site.settings.model_copy(update=settings)
    with TestClient(create_app(changed), base_url="http://localhost:8080") as client:
        yield client


@pytest.fixture
def study(site: Site) -> StudyRecord:
    study = site.study()
    for number in (0, 1):
        site.trial(study, number, quality=0.5 + number, throughput=10.0 - number)
    return study


@pytest.fixture
def patient(site: Site) -> Iterator[TestClient]:
    """The application, whose first answer is the file."""
    with asked(site, export_wait_seconds=60.0) as client:
        yield client


def test_the_first_request_makes_a_file_that_computes_what_the_checkpoint_does(
    patient: TestClient, study: StudyRecord
) -> None:
    answer = patient.get(path_of(study))
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/octet-stream")
    assert answer.headers["etag"] == f'"{sha256(answer.content)}"'
    assert f'filename="{study.id}-0.onnx"' in answer.headers["content-disposition"]
    stored = patient.get(path_of(study).replace("onnx", "checkpoint"))
    loaded = checkpoint.load(stored.content)
    session = onnxruntime.InferenceSession(answer.content, providers=["CPUExecutionProvider"])
    x = torch.randn(3, 11, loaded.spec.signature.input_size)
    (found,) = session.run(None, {"input": x.numpy()})
    expected = loaded.module.eval()(x).detach()
    torch.testing.assert_close(torch.as_tensor(found), expected, atol=1e-5, rtol=1e-4)
    metadata = {e.key: e.value for e in onnx.load_from_string(answer.content).metadata_props}
    assert metadata["checkpoint_sha256"] == sha256(stored.content)


def test_links_name_the_file_once_it_is_there(patient: TestClient, study: StudyRecord) -> None:
    base = f"/v1/studies/{study.id}"

    def links() -> list[str | None]:
        trial = patient.get(f"{base}/trials/0").json()
        listed = patient.get(f"{base}/trials").json()["items"][0]
        point = patient.get(f"{base}/front").json()["points"][0]
        assert point["trial"] == 0
        return [document["links"]["onnx"] for document in (trial, listed, point)]

    assert links() == [None] * 3
    assert patient.get(path_of(study)).status_code == 200
    assert links() == [path_of(study)] * 3
    assert patient.get(f"{base}/trials/1").json()["links"]["onnx"] is None


def test_ranges_and_entity_tags_are_those_of_any_file(
    patient: TestClient, study: StudyRecord
) -> None:
    named = {"X-Request-ID": "the-same"}
    whole = patient.get(path_of(study), headers=named)
    tag = whole.headers["etag"]
    part = patient.get(path_of(study), headers={"Range": "bytes=10-19", "If-Range": tag})
    assert (part.status_code, part.content) == (206, whole.content[10:20])
    unchanged = patient.get(path_of(study), headers={"If-None-Match": tag})
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    behind = patient.get(path_of(study), headers={"Range": f"bytes={len(whole.content)}-"})
    assert behind.status_code == 416
    head = patient.head(path_of(study), headers=named)
    assert (head.content, dict(head.headers)) == (b"", dict(whole.headers))


def test_who_cannot_wait_is_told_when_to_ask_again(site: Site, study: StudyRecord) -> None:
    with asked(site, export_wait_seconds=0.0) as client:
        first = client.get(path_of(study))
        assert first.status_code == 202
        assert int(first.headers["retry-after"]) >= 1
        assert "made" in first.json()["detail"]
        assert "etag" not in first.headers
        wait_until(lambda: client.get(path_of(study)).status_code == 200, what="the file")


def test_two_first_requests_make_one_file(
    site: Site, study: StudyRecord, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "search.exports.making")
    with asked(site, export_wait_seconds=60.0) as client, ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(client.get, [path_of(study)] * 4))
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1
    made = [record for record in caplog.records if record.name == "search.exports.making"]
    assert len(made) == 1


def test_a_server_that_ends_in_between_loses_nothing(site: Site, study: StudyRecord) -> None:
    with asked(site, export_wait_seconds=0.0) as client:
        for number in (0, 1):
            assert client.get(path_of(study, number)).status_code == 202
    with asked(site, export_wait_seconds=60.0) as client:
        for number in (0, 1):
            answer = client.get(path_of(study, number))
            assert answer.status_code == 200
            assert answer.headers["etag"] == f'"{sha256(answer.content)}"'


def test_a_trial_that_runs_has_no_file_yet(patient: TestClient, site: Site) -> None:
    study = site.study()
    running = site.trial(study, 0, state=TrialState.RUNNING)
    assert patient.get(path_of(study)).status_code == 404
    assert patient.get(path_of(study, 7)).status_code == 404
    with site.database.write() as session:
        ArtifactRows(session).link(study.id, running.number, "checkpoint", site.keep(b"so far"))
    answer = patient.get(path_of(study))
    assert answer.status_code == 409
    assert answer.headers["content-type"] == "application/problem+json"
    assert "running" in answer.json()["detail"]


def test_a_model_without_a_faithful_file_is_a_problem_and_nothing_is_stored(
    patient: TestClient, site: Site, study: StudyRecord
) -> None:
    trial = site.trial(study, 2)
    sound = patient.get(f"/v1/studies/{study.id}/trials/2/checkpoint").content
    loaded = checkpoint.load(sound)
    with torch.no_grad():
        loaded.module.get_parameter("readout.bias").fill_(torch.nan)
    broken = checkpoint.save_bytes(loaded.module, loaded.spec)
    for content, status in ((broken, 500), (b"no checkpoint", 422), (sound, 200)):
        with site.database.write() as session:
            ArtifactRows(session).link(study.id, trial.number, "checkpoint", site.keep(content))
        before = patient.get(f"/v1/studies/{study.id}/trials/2").json()["links"]["onnx"]
        assert before is None
        answer = patient.get(path_of(study, 2))
        assert answer.status_code == status
        if status == 500:
            assert answer.json()["type"] == "urn:reflectory:export"
            assert "no number" in answer.json()["detail"]


class Held(LocalArtifactStore):
    """A store whose readers wait, as a slow disk's would."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.released = threading.Event()

    def open_reader(self, artifact_id: str) -> BinaryIO:
        assert self.released.wait(600)
        return super().open_reader(artifact_id)


def test_no_more_wait_than_are_allowed_and_the_next_is_taken_later(
    site: Site, study: StudyRecord
) -> None:
    store = Held(site.settings.artifacts_dir)
    exports = Exports(site.database, store)
    try:
        assert not exports.make(study.id, 0, ONNX, patience=0)
        for number in range(LONGEST_QUEUE):
            assert not exports.make("none", number, ONNX, patience=0)
        store.released.set()
        assert exports.make(study.id, 0, ONNX, patience=60)
        for number in (0, LONGEST_QUEUE - 1):
            with pytest.raises(NotFound, match="none"):
                exports.make("none", number, ONNX, patience=60)
    finally:
        store.released.set()
        exports.close()
    with site.database.read() as session:
        artifact = ArtifactRows(session).of_trial(study.id, 0)["onnx"]
    with site.store.open_reader(artifact.sha256) as reader:
        onnx.checker.check_model(onnx.load(io.BytesIO(reader.read())))


def test_the_client_waits_for_the_file(site: Site, study: StudyRecord, tmp_path: Path) -> None:
    out = tmp_path / "model.onnx"
    site.settings = site.settings.model_copy(update={"export_wait_seconds": 0.0})
    with listening(site) as (host, port), Client(f"http://{host}:{port}") as client:
        with pytest.raises(Unfinished, match=r"trial 0 .* was not made within 0 s"):
            client.onnx(study.id, 0, out, patience=0)
        assert not out.exists()
        fetched = client.onnx(study.id, 0, out)
    assert fetched.sha256 == sha256(out.read_bytes())
    onnx.checker.check_model(onnx.load(out))


# What may be picked for the layers of a network is said in terms of onnx; nobody runs it for that.
@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("service.app", {"onnxruntime"}),
        ("service.cli", {"onnx", "onnxruntime"}),
        ("search.agents.worker", {"onnxruntime"}),
    ],
)
def test_nobody_waits_for_the_libraries_before_a_file_is_asked_for(
    module: str, absent: set[str]
) -> None:
    code = f"import sys, {module}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert absent.isdisjoint(run.stdout.split())
