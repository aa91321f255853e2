"""The front's points as one ZIP file."""

import base64
import csv
import hashlib
import io
import json
import zipfile
from pathlib import Path
from typing import BinaryIO

import pytest
from starlette.testclient import TestClient

from models.checkpoint import load
from search.fronts import pareto
from service.api.folders import FolderMaker
from service.api.fronts.bundle import bundle
from service.api.fronts.documents import front_document
from service.api.fronts.schemas import FrontDocument
from service.client import Client
from service.rendering.pages import Pages
from storage.blobs.artifacts import ArtifactStore
from storage.blobs.folder import LocalArtifactStore
from storage.errors import StoredBytesDamaged, StoreUnavailable
from storage.records import StudyRecord, TrialState
from storage.repositories.artifact_rows import ArtifactRows
from tests.search.honest_words import files
from tests.service.commands.test_cli import reflectory
from tests.service.listening import listening
from tests.service.site import Site


def test_a_bundle_has_what_the_fronts_points_have(client: TestClient, site: Site) -> None:
    study = site.study()
    site.trial(study, 0, quality=0.9, throughput=120.0)
    site.trial(study, 1, quality=0.5, throughput=1.0)
    site.trial(study, 2, state=TrialState.STOPPED)
    study_path = f"/v1/studies/{study.id}"
    answer = client.get(f"{study_path}/bundle")
    assert answer.headers["content-type"] == "application/zip"
    assert answer.headers["content-disposition"] == f'attachment; filename="{study.id}.zip"'
    front = client.get(f"{study_path}/front")
    numbers = [point["trial"] for point in front.json()["points"]]
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.testzip() is None
        folders = [f"trial-{number}/{name}" for number in numbers for name in OF_ANY_POINT]
        assert archive.namelist() == ["front.csv", "front.json", *folders, "missing.json"]
        assert (
            archive.read("front.csv").decode() == client.get(f"{study_path}/front?format=csv").text
        )
        rows = [*csv.DictReader(io.StringIO(archive.read("front.csv").decode()))]
        assert [int(row["trial"]) for row in rows] == numbers
        for number, row in zip(numbers, rows, strict=True):
            stored = archive.read(f"trial-{number}/model.safetensors")
            assert int(row["checkpoint_bytes"]) == len(stored)
            assert stored == client.get(f"{study_path}/trials/{number}/checkpoint").content
            load(stored)
    assert client.get(f"{study_path}/bundle").content == answer.content


OF_ANY_POINT = (
    *("model.safetensors", "report.json", "report.csv", "report.html"),
    *("MODEL_CARD.md", "VERIFIED.json"),
)
"""What is in the folder of a point of which nothing has been made yet."""


def maker(site: Site, store: ArtifactStore) -> FolderMaker:
    return FolderMaker(site.database, store, Pages())


def test_an_empty_front_is_a_bundle_of_its_tables(client: TestClient, site: Site) -> None:
    answer = client.get(f"/v1/studies/{site.study().id}/bundle")
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.namelist() == ["front.csv", "front.json"]
    assert client.get("/v1/studies/unknown/bundle").status_code == 404


def two_points(site: Site) -> StudyRecord:
    study = site.study()
    site.trial(study, 0, quality=0.9, throughput=120.0)
    site.trial(study, 1, quality=0.95, throughput=1.0)
    return study


def digest_of(site: Site, study: StudyRecord, number: int, role: str = "checkpoint") -> str:
    with site.database.read() as session:
        return ArtifactRows(session).of_trial(study.id, number)[role].sha256


def damage(site: Site, sha256: str) -> None:
    """Turn a bit, as a disk does."""
    path = site.settings.artifacts_dir / sha256[:2] / sha256
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.chmod(0o600)
    path.write_bytes(content)


def test_what_is_damaged_or_gone_is_named_and_all_else_is_there(
    client: TestClient, site: Site, tmp_path: Path
) -> None:
    study = two_points(site)
    damage(site, digest_of(site, study, 0))
    site.store.remove(digest_of(site, study, 1, "report"))
    answer = client.get(f"/v1/studies/{study.id}/bundle")
    assert answer.status_code == 200
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.testzip() is None
        assert set(archive.namelist()) == {
            "front.csv",
            "front.json",
            "missing.json",
            *(f"trial-0/{name}" for name in OF_ANY_POINT if name != "model.safetensors"),
            *(f"trial-1/{name}" for name in OF_ANY_POINT if not name.startswith("report")),
        }
        load(archive.read("trial-1/model.safetensors"))
        missing = {one["file"]: one for one in json.loads(archive.read("missing.json"))["missing"]}
    assert {file for file, one in missing.items() if one["lost"]} == {
        "trial-0/model.safetensors",
        "trial-1/report.json",
        "trial-1/report.csv",
        "trial-1/report.html",
    }
    assert "first asked for" in missing["trial-0/model.onnx"]["reason"]
    assert digest_of(site, study, 0) in missing["trial-0/model.safetensors"]["reason"]


def test_what_was_not_to_be_kept_is_named_as_such(client: TestClient, site: Site) -> None:
    study = two_points(site)
    with site.database.write() as session:
        ArtifactRows(session).unlink(study.id, {0: ["checkpoint"]})
    answer = client.get(f"/v1/studies/{study.id}/bundle")
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        missing = {one["file"]: one for one in json.loads(archive.read("missing.json"))["missing"]}
        card = archive.read("trial-0/MODEL_CARD.md").decode()
    one = missing["trial-0/model.safetensors"]
    assert not one["lost"]
    assert "retention" in one["reason"]
    assert f"- `model.safetensors`: {one['reason']}" in card


class _DamagedMidway(LocalArtifactStore):
    """Bytes of which the damage is met when they are read, as of a large file in a bucket."""

    def __init__(self, root: Path, damaged: str, error: Exception) -> None:
        super().__init__(root)
        self.damaged, self.error = damaged, error

    def open_reader(self, artifact_id: str) -> BinaryIO:
        reader = super().open_reader(artifact_id)
        return self._breaking(reader) if artifact_id == self.damaged else reader

    def _breaking(self, reader: BinaryIO) -> BinaryIO:
        first, error = reader.read(100), self.error

        class Breaking(io.BytesIO):
            def read(self, size: int | None = -1, /) -> bytes:
                piece = super().read(size)
                if not piece:
                    raise error
                return piece

        reader.close()
        return Breaking(first)


def front_of(site: Site, study: StudyRecord) -> FrontDocument:
    with site.database.read() as session:
        return front_document(study.id, pareto.front(session, study))


def test_damage_that_is_met_midway_takes_the_file_out_of_the_directory(site: Site) -> None:
    study = two_points(site)
    sha256 = digest_of(site, study, 0)
    store = _DamagedMidway(site.settings.artifacts_dir, sha256, StoredBytesDamaged("block 1"))
    content = b"".join(bundle(maker(site, store), study.id, front_of(site, study)))
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.testzip() is None
        assert "trial-0/model.safetensors" not in archive.namelist()
        assert "trial-1/model.safetensors" in archive.namelist()
        missing = json.loads(archive.read("missing.json"))["missing"]
    lost = [(one["file"], one["reason"]) for one in missing if one["lost"]]
    assert lost == [("trial-0/model.safetensors", "block 1")]


def test_a_store_that_does_not_answer_leaves_no_whole_bundle(site: Site) -> None:
    study = two_points(site)
    sha256 = digest_of(site, study, 0)
    store = _DamagedMidway(site.settings.artifacts_dir, sha256, StoreUnavailable("away"))
    received = io.BytesIO()
    with pytest.raises(StoreUnavailable):
        received.writelines(bundle(maker(site, store), study.id, front_of(site, study)))
    assert received.tell() > 0
    assert not zipfile.is_zipfile(received)


def test_a_damaged_file_is_no_success(client: TestClient, site: Site) -> None:
    study = two_points(site)
    path = f"/v1/studies/{study.id}/trials/0/checkpoint"
    whole = client.get(path)
    digest = base64.b64encode(hashlib.sha256(whole.content).digest()).decode()
    assert whole.headers["repr-digest"] == f"sha-256=:{digest}:"
    damage(site, digest_of(site, study, 0))
    answer = client.get(path)
    assert answer.status_code == 500
    assert answer.json()["type"] == "urn:reflectory:damaged-artifact"
    site.store.remove(digest_of(site, study, 0))
    assert client.get(path).status_code == 404


def test_a_worker_whose_state_is_damaged_begins_anew(client: TestClient, site: Site) -> None:
    study = site.study()
    site.run(study)
    site.trial(study, 0, state=TrialState.RUNNING)
    lease = site.lease(study, 0)
    path, content = lease.path("artifacts/resume"), files(lease.job)["resume"]
    assert client.put(path, headers=lease.headers, content=content).status_code == 200
    damage(site, digest_of(site, study, 0, "resume"))
    assert client.get(path, headers=lease.headers).status_code == 404


def test_the_command_line_saves_the_rest_and_says_what_is_lost(site: Site, tmp_path: Path) -> None:
    study = two_points(site)
    with listening(site) as (host, port):
        url = f"http://{host}:{port}"
        damage(site, digest_of(site, study, 0))
        for way, saved in (
            (("--bundle",), {f"{study.id}.zip"}),
            ((), {"front.csv", "trial-0/report.json", "trial-1/model.safetensors"}),
            (("0",), {"trial-0/report.json"}),
        ):
            out = tmp_path / "-".join(("out", *way))
            run = reflectory(None, "download", study.id, *way, "--out", out, "--server", url)
            assert run.returncode == 1, run.stderr
            assert "trial" in run.stderr
            assert "model.safetensors" in run.stderr
            found = {path.relative_to(out).as_posix() for path in out.rglob("*")}
            assert saved <= found
            assert "trial-0/model.safetensors" not in found
        with Client(url) as python:
            got = python.bundle(study.id, tmp_path / "front.zip")
    assert [one.file for one in got.missing if one.lost] == ["trial-0/model.safetensors"]
