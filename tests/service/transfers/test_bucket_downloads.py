"""The API over a bucket: files through the server, or by a URL of the bucket; what is ready."""

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
from starlette.testclient import TestClient

from service.app import create_app
from service.auth.api_keys import create_key
from service.client import Client
from service.client.errors import Damaged, Refused
from storage.records import StudyRecord
from tests.s3_server import S3Server, url_of
from tests.service.listening import listening
from tests.service.relay import Relay
from tests.service.site import Site

HERE = ("127.0.0.1", 50000)

pytestmark = pytest.mark.usefixtures("aws_credentials")


@contextmanager
def site_of(folder: Path, server: S3Server, *, port: int | None = None, **given) -> Iterator[Site]:
    site = Site(folder / "data", artifacts_url=url_of(server.place(port=port)), **given)
    yield site
    site.close()


@contextmanager
def asking(site: Site) -> Iterator[TestClient]:
    app = create_app(site.settings)
    with TestClient(app, base_url="http://localhost:8080", client=HERE) as client:
        yield client


def study_with_a_trial(site: Site) -> StudyRecord:
    study = site.study()
    site.trial(study, 0, quality=0.9, throughput=10.0)
    return study


@pytest.fixture
def relay(s3_server: S3Server) -> Iterator[Relay]:
    """The way to the bucket, for the server and for everybody else."""
    with Relay(("127.0.0.1", s3_server.port)) as relay:
        yield relay


def presigned(relay: Relay) -> list[bytes]:
    """The requests for which a URL was all that was needed."""
    return [asked for asked in relay.asked if b"X-Amz-Signature" in asked.partition(b"\r\n")[0]]


def test_all_files_of_a_trial_come_through_the_server(tmp_path: Path, s3_server: S3Server) -> None:
    with site_of(tmp_path, s3_server) as site, asking(site) as client:
        study = study_with_a_trial(site)
        path = f"/v1/studies/{study.id}/trials/0"
        whole = client.get(f"{path}/checkpoint")
        assert whole.status_code == 200
        digest = hashlib.sha256(whole.content).hexdigest()
        assert whole.headers["ETag"] == f'"{digest}"'
        part = client.get(f"{path}/checkpoint", headers={"Range": "bytes=100-199"})
        assert (part.status_code, part.content) == (206, whole.content[100:200])
        known = client.get(f"{path}/checkpoint", headers={"If-None-Match": f'"{digest}"'})
        assert known.status_code == 304
        assert client.get(f"{path}/report").json()["totals"]["parameters"] > 0
        while (onnx := client.get(f"{path}/onnx")).status_code == 202:
            pass
        assert onnx.status_code == 200
        bundle = tmp_path / "bundle.zip"
        bundle.write_bytes(client.get(f"/v1/studies/{study.id}/bundle").content)
        with zipfile.ZipFile(bundle) as archive:
            assert archive.testzip() is None
            assert archive.read("trial-0/model.safetensors") == whole.content
            assert archive.read("trial-0/model.onnx") == onnx.content
        assert not site.settings.artifacts_dir.exists(), "nothing needs a folder"
        deleted = site.study()
        site.finish(study)
        site.finish(deleted)
        assert client.delete(f"/v1/studies/{study.id}").status_code == 204
        assert list(site.store.digests()) == []


def test_a_file_can_be_fetched_from_the_bucket_without_showing_it_the_key(
    tmp_path: Path, s3_server: S3Server, relay: Relay
) -> None:
    port = int(relay.url.rpartition(":")[2])
    with site_of(tmp_path, s3_server, port=port, downloads="redirect") as site:
        study = study_with_a_trial(site)
        key = create_key(site.database, name="a key", scopes=("read",)).text
        with listening(site) as (host, api), Client(f"http://{host}:{api}", key=key) as client:
            got = client.download(study.id, 0, tmp_path / "model.safetensors")
            assert got.sha256 == hashlib.sha256(got.path.read_bytes()).hexdigest()
            (asked,) = presigned(relay)
            assert b"authorization" not in asked.lower()
            assert key.encode() not in b"".join(relay.asked)
            path = f"http://{host}:{api}/v1/studies/{study.id}/trials/0/checkpoint"
            assert httpx2.get(path).status_code == 401, "the way there is for those with a key"
            with pytest.raises(Refused, match="has no trial 7"):
                client.download(study.id, 7, tmp_path / "other")
            bundle = client.bundle(study.id, tmp_path / "front.zip")
            assert bundle.size > got.size, "a bundle comes through the server"


def test_a_url_of_the_bucket_is_for_one_file_and_for_minutes(
    tmp_path: Path, s3_server: S3Server
) -> None:
    with site_of(tmp_path, s3_server, downloads="redirect") as site, asking(site) as client:
        study = study_with_a_trial(site)
        path = f"/v1/studies/{study.id}/trials/0/checkpoint"
        answer = client.get(path, follow_redirects=False)
        assert answer.status_code == 307
        assert answer.headers["Cache-Control"] == "no-store"
        url = httpx2.URL(answer.headers["Location"])
        assert int(url.params["X-Amz-Expires"]) == 300
        fetched = httpx2.get(url, trust_env=False)
        digest = hashlib.sha256(fetched.content).hexdigest()
        assert answer.headers["ETag"] == f'"{digest}"'
        assert f'filename="{study.id}-0.safetensors"' in fetched.headers["Content-Disposition"]
        headers = {"If-None-Match": answer.headers["ETag"]}
        assert client.get(path, headers=headers, follow_redirects=False).status_code == 304
        site.store.remove(digest)
        gone = client.get(path, follow_redirects=False)
        assert (gone.status_code, gone.json()["title"]) == (404, "No such file")


def test_a_transfer_from_the_bucket_goes_on_where_it_broke_and_is_checked(
    tmp_path: Path, s3_server: S3Server, relay: Relay
) -> None:
    port = int(relay.url.rpartition(":")[2])
    with (
        site_of(tmp_path, s3_server, port=port, downloads="redirect") as site,
        listening(site) as (host, api),
        Client(f"http://{host}:{api}") as client,
    ):
        study = study_with_a_trial(site)
        # Each try is a question of the server's for the size, and then the transfer.
        whole = 1 << 20
        relay.cuts.extend([whole, 1500, whole, 1500])
        got = client.download(study.id, 0, tmp_path / "model.safetensors")
        assert got.sha256 == hashlib.sha256(got.path.read_bytes()).hexdigest()
        asked = presigned(relay)
        assert len(asked) == 3
        assert [b"range: bytes=" in request.lower() for request in asked] == [False, True, True]
        relay.damage_at = 1500
        with pytest.raises(Damaged, match="sha256"):
            client.download(study.id, 0, tmp_path / "damaged.safetensors")
        assert not (tmp_path / "damaged.safetensors").exists()


def test_a_bucket_that_is_away_is_told_of_and_its_host_is_not(tmp_path: Path) -> None:
    server = S3Server()
    try:
        with site_of(tmp_path, server) as site, asking(site) as client:
            site.settings.coordinator_alive.touch()
            study = study_with_a_trial(site)
            ready = client.get("/readyz")
            assert ready.status_code == 200, ready.text
            checkpoint = f"/v1/studies/{study.id}/trials/0/checkpoint"
            assert client.get(checkpoint).status_code == 200
            server.stop()
            ready = client.get("/readyz")
            assert ready.status_code == 503
            (fault,) = ready.json()["errors"]
            assert fault["path"] == "store"
            assert "s3://artifacts-0/reflectory does not answer" in fault["message"]
            away = client.get(checkpoint)
            assert away.status_code == 503
            assert int(away.headers["Retry-After"]) > 0
            for answer in (ready, away):
                assert str(server.port) not in answer.text
            other = client.get("/readyz", headers={"X-Forwarded-For": "203.0.113.9"})
            assert "s3://" not in other.text
    finally:
        server.stop()


def test_another_bucket_than_before_is_missed(tmp_path: Path, s3_server: S3Server) -> None:
    with site_of(tmp_path, s3_server) as site:
        study_with_a_trial(site)
    with site_of(tmp_path, s3_server) as site, asking(site) as client:
        site.settings.coordinator_alive.touch()
        (fault,) = client.get("/readyz").json()["errors"]
        assert "holds nothing, and the database names 2 files in it" in fault["message"]


@pytest.mark.parametrize("command", ["serve", "api", "coordinator"])
def test_over_a_bucket_that_is_not_there_no_server_starts(
    tmp_path: Path, s3_server: S3Server, command: str
) -> None:
    url = f"s3://nobody-made-this?endpoint={s3_server.url}&region=us-east-1"
    environment = {"REFLECTORY_ARTIFACTS_URL": url, "REFLECTORY_DATA_DIR": str(tmp_path / "data")}
    run = subprocess.run(
        [sys.executable, "-m", "service.cli", command, "--json"],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, **environment},
    )
    assert run.returncode == 1
    said = json.loads(run.stderr.splitlines()[-1])["detail"]
    assert said == "there is no bucket for s3://nobody-made-this; make it first"
    assert "Traceback" not in run.stderr
