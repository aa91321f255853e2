"""The region of interest on the pages of a study, in its report, and in a terminal's tables."""

import re
from typing import Any

import pytest
from rich.console import Console
from starlette.testclient import TestClient

from service.api.fronts.schemas import FrontDocument
from service.api.studies.schemas import StudyDocument
from service.api.trials.schemas import TrialPage
from service.commands.shown.tables import front_table, study_table
from service.commands.shown.trial_tables import trials_table
from storage.records import StudyRecord
from tests.service.pages.test_pages import assert_strict
from tests.service.site import Site

BOUNDS: dict[str, Any] = {"quality": {"at_least": 0.9}, "parameters": {"at_most": 1000}}
WORDS = "accuracy from 0.9, parameters up to 1,000"


@pytest.fixture
def study(site: Site) -> StudyRecord:
    """A front of three points: worse than interests, inside, and larger than interests."""
    study = site.study(objectives=BOUNDS, parametrizations=["low_rank"])
    site.run(study)
    for number, (quality, parameters) in enumerate([(0.8, 600), (0.95, 900), (0.97, 2000)]):
        site.trial(study, number, quality=quality, parameters=parameters)
    return study


def test_the_page_says_where_the_region_ends_and_the_figure_draws_it(
    client: TestClient, study: StudyRecord
) -> None:
    answer = client.get(f"/studies/{study.id}")
    assert_strict(answer)
    assert f"<dt>Region of interest</dt><dd>{WORDS}</dd>" in answer.text
    figure = client.get(f"/v1/studies/{study.id}/figures/front").json()
    assert WORDS in figure["layout"]["meta"]["caption"]
    lines = [
        (shape.get("x0"), shape.get("y0"))
        for shape in figure["layout"]["shapes"]
        if shape.get("name") == "region" and shape["type"] == "line"
    ]
    assert lines == [(1000.0, 0), (0, 0.9)]


def test_points_outside_are_told_apart(client: TestClient, study: StudyRecord) -> None:
    page = client.get(f"/studies/{study.id}").text
    assert page.count('<span class="quiet">outside</span>') == 2 * 2
    figure = client.get(f"/v1/studies/{study.id}/figures/front").json()
    opaque = {
        number: opacity
        for trace in figure["data"]
        if "opacity" in trace.get("marker", {})
        for number, opacity in zip(trace["customdata"], trace["marker"]["opacity"], strict=True)
    }
    assert opaque[0] < opaque[1] > opaque[2]
    shown = client.get(f"/studies/{study.id}/trials/2").text
    assert f"<dt>Region of interest</dt><dd>outside: {WORDS}</dd>" in shown
    assert "Region of interest" not in client.get(f"/studies/{study.id}/trials/1").text


def test_without_a_region_nothing_of_it_is_shown(client: TestClient, site: Site) -> None:
    study = site.study()
    site.trial(study, 0, quality=0.2, throughput=1.0)
    for path in (f"/studies/{study.id}", f"/v1/studies/{study.id}/report?plain=true"):
        assert "egion of interest" not in client.get(path).text


def test_a_report_says_it_too(client: TestClient, study: StudyRecord) -> None:
    report = client.get(f"/v1/studies/{study.id}/report?plain=true").text
    assert f"<dt>Region of interest</dt><dd>{WORDS}</dd>" in report


def told(table: object) -> str:
    console = Console(width=100)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


def test_tables_of_a_terminal_say_what_is_outside(client: TestClient, study: StudyRecord) -> None:
    path = f"/v1/studies/{study.id}"
    shown = StudyDocument.model_validate_json(client.get(path).text)
    assert "quality from 0.9, parameters up to 1,000" in told(study_table(shown))
    front = FrontDocument.model_validate_json(client.get(f"{path}/front").text)
    table = told(front_table(front))
    assert len(re.findall(r"^\s+outside", table, re.M)) == 2
    assert "outside: beyond the study's region of interest" in table
    trials = TrialPage.model_validate_json(client.get(f"{path}/trials").text).items
    assert told(trials_table(trials, front.objectives)).count("outside") == 2
