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
from tests.service.pages.test_pages import assert_strict, group_of, plot_of
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


def place_of(picture: str, number: int) -> tuple[float, float]:
    mark = picture.split(f'id="mark-{number}"')[1]
    found = re.search(r'<circle cx="([\d.]+)" cy="([\d.]+)"', mark)
    assert found
    return float(found[1]), float(found[2])


def test_the_page_says_and_draws_where_the_region_ends(
    client: TestClient, study: StudyRecord
) -> None:
    answer = client.get(f"/studies/{study.id}")
    assert_strict(answer)
    assert f"<dt>Region of interest</dt><dd>{WORDS}</dd>" in answer.text
    assert f"region of interest: {WORDS}; shaded: outside it" in answer.text
    picture = plot_of(answer.text)
    lines = re.findall(
        r'<line x1="([\d.]+)" y1="([\d.]+)" x2="([\d.]+)" y2="([\d.]+)"',
        group_of(picture, "bounds"),
    )
    (x, *_), (_, y, *_) = (tuple(map(float, line)) for line in lines)
    (worse_x, worse_y), (in_x, in_y), (large_x, large_y) = (
        place_of(picture, number) for number in range(3)
    )
    assert worse_x < in_x < x < large_x
    assert large_y < in_y < y < worse_y
    # One rectangle to the right of the one line, and one below the other.
    (path,) = re.findall(r'<path class="outside" d="([^"]+)"', picture)
    boxes = [tuple(map(float, box)) for box in re.findall(r"M(\S+) (\S+)H(\S+)V([^H]+)H", path)]
    held = [
        [left <= at[0] <= right and top <= at[1] <= bottom for left, top, right, bottom in boxes]
        for at in ((worse_x, worse_y), (in_x, in_y), (large_x, large_y))
    ]
    assert held == [[False, True], [False, False], [True, False]]


def test_points_outside_are_told_apart(client: TestClient, study: StudyRecord) -> None:
    page = client.get(f"/studies/{study.id}").text
    marks = plot_of(page).split('<g class="marks"')[1]
    assert re.findall(r'<g class="beyond"><a href="[^"]+" id="mark-(\d+)"', marks) == ["0", "2"]
    assert marks.count("outside the region of interest") == 2 * 2
    assert "on the front, outside the region of interest" in page
    assert page.count('<span class="quiet">outside</span>') == 2 * 2
    shown = client.get(f"/studies/{study.id}/trials/2").text
    assert f"<dt>Region of interest</dt><dd>outside: {WORDS}</dd>" in shown
    assert "Region of interest" not in client.get(f"/studies/{study.id}/trials/1").text


def test_a_region_beyond_the_axes_shades_all_or_nothing(client: TestClient, site: Site) -> None:
    for bound, is_shaded in ((0.99, True), (0.2, False)):
        study = site.study(objectives={"quality": {"at_least": bound}, "parameters": {}})
        site.trial(study, 0, quality=0.8, parameters=600)
        site.trial(study, 1, quality=0.9, parameters=900)
        picture = plot_of(client.get(f"/studies/{study.id}").text)
        assert "<line" not in group_of(picture, "bounds")
        assert ('class="outside"' in picture) == is_shaded
        assert ('class="beyond"' in picture) == is_shaded


def test_without_a_region_nothing_of_it_is_shown(client: TestClient, site: Site) -> None:
    study = site.study()
    site.trial(study, 0, quality=0.2, throughput=1.0)
    for path in (f"/studies/{study.id}", f"/v1/studies/{study.id}/report"):
        text = client.get(path).text
        assert "egion of interest" not in text
        assert 'class="outside"' not in text


def test_a_report_says_and_draws_it_too(client: TestClient, study: StudyRecord) -> None:
    report = client.get(f"/v1/studies/{study.id}/report").text
    assert f"<dt>Region of interest</dt><dd>{WORDS}</dd>" in report
    assert report.count('<path class="outside"') >= 2


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
