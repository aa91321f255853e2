"""A study with a region of interest, as clients see it."""

import csv
import io
from typing import Any

import pytest
from starlette.testclient import TestClient

from search.fronts.pareto import reference_point
from search.studies.spec import StudySpec
from storage.records import StudyRecord, TrialState
from storage.repositories.studies import Studies
from tests.service.site import SMALL_SPEC, Site

BOUNDS: dict[str, Any] = {"quality": {"at_least": 0.9}, "parameters": {"at_most": 1000}}


@pytest.fixture
def study(site: Site) -> StudyRecord:
    """Three points of a front, of which the second alone is inside, and a trial that runs."""
    study = site.study(objectives=BOUNDS)
    site.run(study)
    point = reference_point(StudySpec.model_validate(study.spec), largest_count=5000)
    with site.database.write() as session:
        Studies(session).set_reference_point(study.id, point)
    for number, (quality, parameters) in enumerate([(0.8, 600), (0.95, 900), (0.97, 2000)]):
        site.trial(study, number, quality=quality, parameters=parameters)
    site.trial(study, 3, state=TrialState.RUNNING, parameters=3000)
    return study


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_bounds_come_back_as_they_were_sent(client: TestClient) -> None:
    study = client.post("/v1/studies", json={**SMALL_SPEC, "objectives": BOUNDS}).json()
    assert study["spec"]["objectives"] == BOUNDS
    assert client.get(study["links"]["study"]).json()["spec"]["objectives"] == BOUNDS
    names = client.post("/v1/studies", json={**SMALL_SPEC, "objectives": [*BOUNDS]}).json()
    assert names["spec"]["objectives"] == [*BOUNDS]


@pytest.mark.parametrize(
    ("objectives", "path", "words"),
    [
        ({}, "objectives", ("at least 1", "{}")),
        ({"speed": {}}, "objectives.speed", ("quality", "latency")),
        ({"quality": {"least": 1}}, "objectives.quality", ("'least'", "at_least or at_most")),
        ({"quality": {"at_least": -1}}, "objectives.quality.at_least", ("greater than 0", "-1")),
        ({"quality": {"at_most": 0.9}}, "objectives.quality.at_most", ("at_least", "0.9")),
        ({"quality": {"at_least": 0.05}}, "objectives.quality.at_least", ("0.05", "baseline")),
        ({"parameters": {"at_most": 3}}, "objectives.parameters.at_most", ("3", "smallest")),
    ],
)
def test_a_wrong_bound_is_refused_with_its_path_and_what_is_allowed(
    client: TestClient, objectives: dict[str, Any], path: str, words: tuple[str, ...]
) -> None:
    answer = client.post("/v1/studies", json={**SMALL_SPEC, "objectives": objectives})
    assert answer.status_code == 422, answer.text
    (fault,) = answer.json()["errors"]
    assert fault["path"] == path
    for word in words:
        assert word in fault["message"]


def test_what_lies_outside_says_so_in_fronts_and_trials(
    client: TestClient, study: StudyRecord
) -> None:
    path = f"/v1/studies/{study.id}"
    front = client.get(f"{path}/front").json()
    assert {point["trial"]: point["outside"] for point in front["points"]} == {
        0: True,
        1: False,
        2: True,
    }
    assert [row["outside"] for row in rows(client.get(f"{path}/front?format=csv").text)] == [
        str(point["outside"]) for point in front["points"]
    ]
    trials = client.get(f"{path}/trials").json()["items"]
    assert [trial["outside"] for trial in trials] == [True, False, True, True]
    assert [row["outside"] for row in rows(client.get(f"{path}/trials?format=csv").text)] == [
        str(trial["outside"]) for trial in trials
    ]
    assert client.get(f"{path}/trials/2").json()["outside"]
    assert not client.get(f"{path}/trials/1").json()["outside"]


def test_the_hypervolume_is_that_of_the_region(client: TestClient, study: StudyRecord) -> None:
    front = client.get(f"/v1/studies/{study.id}/front").json()
    assert front["reference_point"] == {"quality": 0.9, "parameters": 1000.0}
    # From 900 to 1000 parameters, in decades, times 0.05 of accuracy: trial 1 alone.
    assert front["hypervolume"] == pytest.approx(0.045757490560675115 * 0.05)
    progress = client.get(f"/v1/studies/{study.id}").json()["progress"]
    assert progress["hypervolume"] == pytest.approx(front["hypervolume"])


def test_without_a_region_nothing_is_outside(client: TestClient, site: Site) -> None:
    study = site.study()
    site.trial(study, 0, quality=0.2, parameters=9000, throughput=1.0)
    (point,) = client.get(f"/v1/studies/{study.id}/front").json()["points"]
    assert point["outside"] is False
    assert client.get(f"/v1/studies/{study.id}/trials/0").json()["outside"] is False


def test_points_inside_are_recommended_where_there_are_any(
    client: TestClient, site: Site, study: StudyRecord
) -> None:
    path = f"/v1/studies/{study.id}/front"
    found = client.get(path).json()["recommendation"]
    assert (found["trial"], found["best"]) == (1, 1)
    assert "Looked at: of 3 points the 1 in the region of interest." in found["words"]
    other = site.study(objectives={"quality": {"at_least": 0.999}, "parameters": {}})
    site.trial(other, 0, quality=0.8, parameters=600)
    outside = client.get(f"/v1/studies/{other.id}/front").json()["recommendation"]
    assert outside["trial"] == 0
    assert "No point lies in the region of interest." in outside["words"]
