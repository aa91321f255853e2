"""Figures over HTTP: what Plotly draws, and answers that a client need not fetch twice."""

from itertools import product
from typing import Any

from starlette.testclient import TestClient

from service.api.figures.gathering import FIGURES
from tests.service.site import Site

NAMES = list(FIGURES)


def filled(site: Site, **given: Any) -> str:
    study = site.study(**given)
    for number in range(4):
        site.trial(
            study,
            number,
            # Four configurations: of one, trials would be seeds of the same point.
            parametrization=("dense", "low_rank")[number // 2],
            quality=0.5 + number / 10,
            parameters=100 + 100 * number,
            throughput=9.0,
        )
        site.epoch(study, number, 1)
    return study.id


def test_every_figure_is_given_for_studies_with_and_without_trials(
    client: TestClient, site: Site
) -> None:
    backs = {"light": "#ffffff", "dark": "#14181d"}
    for study_id, name, theme in product((site.study().id, filled(site)), NAMES, backs):
        path = f"/v1/studies/{study_id}/figures/{name}"
        answer = client.get(path, params={"theme": theme, "trials": "1,2"})
        assert answer.status_code == 200, answer.text
        found = answer.json()
        assert {trace["type"] for trace in found["data"]} <= {"scatter", "bar"}
        assert found["layout"]["paper_bgcolor"] == backs[theme]
        again = client.get(path, headers={"If-None-Match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


def test_the_front_names_every_trial_and_curves_those_that_are_asked_for(
    client: TestClient, site: Site
) -> None:
    path = f"/v1/studies/{filled(site)}/figures"

    def numbers(name: str, **query: str) -> set[int]:
        figure = client.get(f"{path}/{name}", params=query).json()
        return {n for t in figure["data"] for n in t.get("customdata", ()) if n is not None}

    assert numbers("front") == numbers("parallel") == {0, 1, 2, 3}
    assert numbers("curves", trials="1-2,77") == {1, 2}


def test_what_there_is_not_is_named_with_what_there_is(client: TestClient, site: Site) -> None:
    path = f"/v1/studies/{site.study().id}/figures"
    answer = client.get(f"{path}/pie")
    assert answer.status_code == 404
    assert "'pie'" in answer.json()["detail"]
    assert all(name in answer.json()["detail"] for name in NAMES)
    assert client.get("/v1/studies/none/figures/front").status_code == 404
    for query in ("theme=blue", "trials=x", "panels=3", "x=size"):
        assert client.get(f"{path}/front?{query}").status_code == 422, query


def test_fronts_of_one_metric_are_compared_and_of_two_are_refused(
    client: TestClient, site: Site
) -> None:
    one, two = filled(site, name="one"), filled(site, name="two")
    figure = client.get("/v1/figures/compare", params={"studies": f"{one},{two}"}).json()
    assert {"one", "two"} <= {trace.get("name") for trace in figure["data"]}
    other = site.study(name="copies", task={"kind": "copy"}).id
    answer = client.get("/v1/figures/compare", params={"studies": f"{one},{other}"})
    assert answer.status_code == 422
    for word in ("accuracy", "'one'", "cross_entropy", "'copies'"):
        assert word in answer.json()["detail"]
    many = ",".join(site.study().id for _ in range(7))
    answer = client.get("/v1/figures/compare", params={"studies": many})
    assert (answer.status_code, answer.json()["errors"][0]["path"]) == (422, "studies")
    assert "7 studies are named; at most 6" in answer.json()["detail"]
    assert client.get("/v1/figures/compare", params={"studies": "none"}).status_code == 404


def test_the_front_recommends_in_words(client: TestClient, site: Site) -> None:
    path = f"/v1/studies/{filled(site)}/front"
    found = client.get(path).json()["recommendation"]
    assert found["trial"] == found["smallest_within_noise"]["trial"] == 3
    assert found["noise_samples"] == 400
    wide = client.get(path, params={"max_quality_loss": 0.15}).json()["recommendation"]
    assert (wide["max_quality_loss"], wide["within_loss"]["trial"]) == (0.15, 2)
    assert client.get(path, params={"max_quality_loss": -1}).status_code == 422
