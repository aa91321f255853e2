"""Whole studies with their artifacts in a bucket, which is there, or goes away in between."""

import io
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from models.checkpoint import load
from search.fronts.retention import Retention
from storage.blobs.bucket import S3ArtifactStore
from storage.blobs.places import BucketPlace
from storage.engine import Database
from storage.repositories.artifact_rows import ArtifactRows
from tests.chaos.audit import audit_study
from tests.s3_server import CREDENTIALS, S3Server, url_of
from tests.service.running import Server, wait_until
from tests.system.faults.test_faults import SMALL

pytestmark = pytest.mark.usefixtures("aws_credentials")


@pytest.fixture
def bucket() -> Iterator[S3Server]:
    """A server of one's own: it is going to be stopped."""
    server = S3Server()
    yield server
    server.resume()
    server.stop()


def served(folder: Path, place: BucketPlace, **environment: str) -> Server:
    where = {"REFLECTORY_ARTIFACTS_URL": url_of(place), **CREDENTIALS, **environment}
    return Server(folder / "data", workers=2, environment=where).start()


def audited(server: Server, place: BucketPlace, study_id: str, *, complete: int) -> None:
    """Every trial ended once, and the bucket holds what rows name, and nothing else."""
    front = server.get(f"/v1/studies/{study_id}/front")
    assert server.stop() == 0
    database = Database(f"sqlite:///{server.data_dir / 'reflectory.db'}")
    optuna_url = f"sqlite:///{server.data_dir / 'optuna.db'}"
    assert audit_study(database, optuna_url, study_id, front) == {"complete": complete}
    store = S3ArtifactStore(place)
    retention = Retention(database, store)
    retention.tidy()
    retention.sweep(older_than_seconds=-2.0)
    with database.read() as session:
        named = set(ArtifactRows(session).digests())
    assert set(store.digests(older_than_seconds=-2.0)) == named
    for digest in named:
        store.open_reader(digest).close()
    database.dispose()


def test_a_whole_study_needs_a_bucket_and_no_folder(tmp_path: Path, bucket: S3Server) -> None:
    place = bucket.place()
    server = served(tmp_path, place)
    try:
        spec = {**SMALL, "budget": {"trials": 3, "epochs": 3}, "retention": {"keep": "front"}}
        study_id = server.submit(spec)
        assert server.wait(study_id)["state"] == "finished"
        points = server.get(f"/v1/studies/{study_id}/front")["points"]
        # The coordinator, a process of its own, makes these.
        wait_until(
            lambda: all(
                server.get(f"/v1/studies/{study_id}/trials/{point['trial']}")["links"]["onnx"]
                for point in points
            ),
            what="the ONNX files of the front",
        )
        bundle = server.http.get(f"/v1/studies/{study_id}/bundle").content
        with zipfile.ZipFile(io.BytesIO(bundle)) as archive:
            assert archive.testzip() is None
            for point in points:
                folder = f"trial-{point['trial']}"
                model = load(archive.read(f"{folder}/model.safetensors"))
                assert model.spec.parameter_count() == point["values"]["parameters"]
                assert archive.read(f"{folder}/model.onnx")
                assert archive.read(f"{folder}/report.json")
        assert not (server.data_dir / "artifacts").exists()
        assert CREDENTIALS["AWS_SECRET_ACCESS_KEY"] not in server.log.read_text()
        audited(server, place, study_id, complete=3)
    finally:
        server.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "seconds",
    [pytest.param(3.0, id="3 s"), pytest.param(20.0, id="20 s", marks=pytest.mark.slow)],
)
def test_a_bucket_that_is_gone_for_a_while_heals_and_every_trial_ends_once(
    tmp_path: Path, bucket: S3Server, seconds: float
) -> None:
    """The server takes connections and says nothing, which is the worst way to be away."""
    place = bucket.place()
    server = served(tmp_path, place)
    try:
        first = server.submit({**SMALL, "budget": {"trials": 1, "epochs": 1}})
        server.wait(first)
        checkpoint = f"/v1/studies/{first}/trials/0/checkpoint"
        epochs = 40 if seconds < 10 else 120
        study_id = server.submit({**SMALL, "budget": {"trials": 2, "epochs": epochs}})
        wait_until(lambda: server.study(study_id)["progress"]["epochs_trained"] > 4, what="epochs")
        bucket.suspend()
        until = time.monotonic() + seconds
        if seconds > 10:
            held = wait_until(
                lambda: server.study(study_id)["state"] == "paused" and server.study(study_id),
                what="a study that waits",
                seconds=seconds,
            )
            assert held["state_reason"].startswith("store away: ")
            assert str(bucket.port) not in held["state_reason"]
            assert server.http.get(checkpoint).status_code == 503
            assert server.http.get("/readyz").status_code == 503
        while time.monotonic() < until:
            assert server.http.get("/healthz").status_code == 200
            assert server.http.get(f"/v1/studies/{first}/front").status_code == 200
            time.sleep(0.2)
        bucket.resume()
        assert server.wait(study_id, seconds=300)["state"] == "finished"
        assert not server.has_ended, "it needs no operator"
        assert server.http.get(checkpoint).status_code == 200
        wait_until(lambda: server.http.get("/readyz").status_code == 200, what="a ready server")
        audited(server, place, study_id, complete=2)
    finally:
        bucket.resume()
        server.close()


@pytest.mark.slow
def test_a_server_starts_while_its_bucket_is_away(tmp_path: Path, bucket: S3Server) -> None:
    """Nobody looks after it: it waits, takes studies, and runs them when the bucket is back."""
    place = bucket.place()
    server = served(tmp_path, place)
    try:
        assert server.stop() == 0
        bucket.suspend()
        server.launch()
        wait_until(lambda: server.answers("/readyz") == 503, what="a server that is not ready")
        study_id = server.submit({**SMALL, "budget": {"trials": 1, "epochs": 1}})
        bucket.resume()
        assert server.wait(study_id)["state"] == "finished"
        audited(server, place, study_id, complete=1)
    finally:
        bucket.resume()
        server.close()
