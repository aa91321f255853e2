"""The front's points as one ZIP file."""

import csv
import io
import zipfile

import pytest
from starlette.testclient import TestClient

from models.checkpoint import load
from search import pareto
from service.bundle import bundle
from service.documents import front_document
from storage.artifact_rows import ArtifactRows
from storage.errors import ArtifactNotFound
from storage.records import TrialState
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
        kinds = ("checkpoint.safetensors", "report.json")
        folders = [f"trial-{number}/{kind}" for number in numbers for kind in kinds]
        assert archive.namelist() == ["front.csv", "front.json", *folders]
        assert (
            archive.read("front.csv").decode() == client.get(f"{study_path}/front?format=csv").text
        )
        rows = csv.DictReader(io.StringIO(archive.read("front.csv").decode()))
        assert [int(row["trial"]) for row in rows] == numbers
        for number in numbers:
            stored = archive.read(f"trial-{number}/checkpoint.safetensors")
            assert stored == client.get(f"{study_path}/trials/{number}/checkpoint").content
            load(stored)
    assert client.get(f"{study_path}/bundle").content == answer.content


def test_an_empty_front_is_a_bundle_of_its_tables(client: TestClient, site: Site) -> None:
    answer = client.get(f"/v1/studies/{site.study().id}/bundle")
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.namelist() == ["front.csv", "front.json"]
    assert client.get("/v1/studies/unknown/bundle").status_code == 404


def test_a_bundle_that_cannot_be_whole_does_not_look_so(site: Site) -> None:
    study = site.study()
    site.trial(study, 0, quality=0.9, throughput=120.0)
    with site.database.read() as session:
        lost = ArtifactRows(session).of_trial(study.id, 0)["checkpoint"].sha256
    site.store.remove(lost)
    with site.database.read() as session:
        front = front_document(study.id, pareto.front(session, study))
    received = io.BytesIO()
    with pytest.raises(ArtifactNotFound):
        received.writelines(bundle(site.database, site.store, study.id, front))
    assert received.tell() > 0
    assert not zipfile.is_zipfile(received)
