"""Importance, hypervolume over time, and answers that a client need not fetch twice."""

from datetime import UTC, datetime
from typing import Any, get_args

import pytest
from starlette.testclient import TestClient

from search.documents.objectives import Objective
from storage.endings import StudyCause
from storage.records import StudyRecord
from storage.repositories.events import Events
from storage.repositories.studies import Studies
from tests.service.site import Site


def front_event(site: Site, study: StudyRecord, volume: float | None, **payload: Any) -> None:
    with site.database.write() as session:
        content = {"hypervolume": volume, **payload}
        Events(session).append(study.id, "front", content, datetime(2026, 3, 1, tzinfo=UTC))


def test_importance_has_a_reason_where_trials_are_few(client: TestClient, site: Site) -> None:
    study = site.study()
    site.trial(study, 0, quality=0.5, throughput=100.0)
    found = client.get(f"/v1/studies/{study.id}/importance").json()
    assert found["method"] == "ped_anova"
    assert [one["objective"]["name"] for one in found["objectives"]] == [
        "quality",
        "parameters",
        "throughput",
    ]
    assert {one["reason"] for one in found["objectives"]} == {"1 trials have a value; it takes 10"}


def test_importance_tells_which_dimension_decided(client: TestClient, site: Site) -> None:
    study = site.study()
    for number in range(12):
        # The site draws one end of every dimension or the other, in turn.
        site.trial(study, number, quality=0.9 if number % 2 else 0.1 + number / 1000)
    quality = client.get(f"/v1/studies/{study.id}/importance").json()["objectives"][0]
    assert quality["trials"] == 12
    by_name = {one["dimension"]: one for one in quality["dimensions"]}
    assert by_name["rnn.hidden_size"]["trend"] > 0.8
    assert sum(one["importance"] for one in quality["dimensions"]) == pytest.approx(1.0)


def test_the_hypervolume_is_told_from_change_to_change(client: TestClient, site: Site) -> None:
    study = site.study()
    circumstances = {"trial": 0, "epochs_trained": 4, "wall_seconds": 2.5}
    front_event(site, study, 0.25, trials=[0], **circumstances)
    # A coordinator that was started again tells of the front that it finds.
    front_event(site, study, 0.25, trials=[0], trial=0, epochs_trained=5, wall_seconds=9.0)
    site.event(study, file="x")
    # As it was told before the circumstances were.
    front_event(site, study, 0.5, trials=[0, 3])
    assert client.get(f"/v1/studies/{study.id}/hypervolume").json() == [
        {**circumstances, "at": "2026-03-01T00:00:00Z", "hypervolume": 0.25, "points": 1},
        {
            "trial": None,
            "epochs_trained": None,
            "wall_seconds": None,
            "at": "2026-03-01T00:00:00Z",
            "hypervolume": 0.5,
            "points": 2,
        },
    ]


def test_a_study_of_one_objective_has_no_hypervolume(client: TestClient, site: Site) -> None:
    study = site.study()
    front_event(site, study, None, trials=[0])
    assert client.get(f"/v1/studies/{study.id}/hypervolume").json() == []


@pytest.mark.parametrize("what", ["importance", "hypervolume", "front", "front?format=csv"])
def test_an_answer_that_still_holds_is_not_sent_again(
    client: TestClient, site: Site, what: str
) -> None:
    study = site.study()
    path = f"/v1/studies/{study.id}/{what}"
    first = client.get(path)
    tag = first.headers["etag"]
    again = client.get(path, headers={"If-None-Match": f'"another", W/{tag}'})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    site.trial(study, 0, quality=0.5, throughput=100.0)
    changed = client.get(path, headers={"If-None-Match": tag})
    assert changed.status_code == 200
    assert changed.headers["etag"] != tag


def test_the_front_says_why_it_is_not_confirmed(client: TestClient, site: Site) -> None:
    def unconfirmed(study: StudyRecord) -> str | None:
        return client.get(f"/v1/studies/{study.id}/front").json()["unconfirmed"]

    plain, wanted = site.study(), site.study(confirm=2)
    for study in (plain, wanted):
        assert unconfirmed(study) is None
        site.run(study)
        site.trial(study, 0, quality=0.5, throughput=100.0)
    assert unconfirmed(plain) is None
    assert unconfirmed(wanted) == "the search is not over"
    with site.database.write() as session:
        Studies(session).set_ending(wanted.id, StudyCause.BUDGET, "total_epochs")
    site.finish(wanted)
    assert unconfirmed(wanted) == "the study ended before: budget: total_epochs"
    page = client.get(f"/studies/{wanted.id}").text
    assert "Not confirmed: the study ended before: budget: total_epochs" in page


@pytest.mark.parametrize("what", ["importance", "hypervolume"])
def test_an_unknown_study_has_no_figures(client: TestClient, what: str) -> None:
    answer = client.get(f"/v1/studies/none/{what}")
    assert answer.status_code == 404
    assert "'none'" in answer.json()["detail"]


@pytest.mark.parametrize("x", get_args(Objective))
def test_any_objective_may_be_an_axis(client: TestClient, site: Site, x: Objective) -> None:
    """One that the study does not have says that nothing has a value of it."""
    study = site.study(objectives=["quality", "parameters"])
    site.run(study)
    site.trial(study, 0, quality=0.5, parameters=500)
    path = f"/v1/studies/{study.id}/figures/front"
    for y in get_args(Objective):
        answer = client.get(path, params={"x": x, "y": y})
        assert answer.status_code == 200, answer.text
    other = site.study(objectives=["quality", "parameters"])
    asked = {"studies": f"{study.id},{other.id}", "x": x}
    assert client.get("/v1/figures/compare", params=asked).status_code == 200
