import re
from html.parser import HTMLParser
from typing import Any

import pytest
from starlette.testclient import TestClient

from storage.events import Events
from storage.records import Json, StudyState, TrialState
from tests.service.site import Site, now


class Elements(HTMLParser):
    """The elements of a page, with their attributes and the text in them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text.append(data.strip())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


def assert_strict(answer: Any) -> None:
    """The page keeps to its own policy: nothing inline, nothing from elsewhere."""
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    elements = Elements(answer.text)
    for tag, attributes in elements.found:
        assert "style" not in attributes, tag
        assert not [name for name in attributes if name.startswith("on")], tag
        for name in ("src", "href"):
            if name in attributes:
                assert re.match(r"/(?!/)", attributes[name] or ""), attributes
    assert all("src" in script for script in elements.all("script"))


def test_the_first_page_without_studies_says_how_to_begin(client: TestClient) -> None:
    answer = client.get("/")
    assert answer.status_code == 200
    assert "reflectory submit" in answer.text
    assert_strict(answer)


def test_the_first_page_lists_studies_with_their_links(client: TestClient, site: Site) -> None:
    studies = [site.study(name=f"study {i}") for i in range(2)]
    site.run(studies[0])
    answer = client.get("/")
    links = {link["href"] for link in Elements(answer.text).all("a")}
    for study in studies:
        assert {f"/studies/{study.id}", f"/v1/studies/{study.id}/front"} <= links
    assert "/dashboard" in links
    assert "running" in answer.text
    assert_strict(answer)


def test_older_studies_are_a_page_away(client: TestClient, site: Site) -> None:
    ids = {site.study().id for _ in range(51)}
    first = client.get("/")
    older = [
        link["href"] for link in Elements(first.text).all("a") if "cursor" in str(link["href"])
    ]
    second = client.get(str(older[0]))
    shown = re.findall(r'href="/studies/([^"]+)"', first.text + second.text)
    assert sorted(shown) == sorted(ids)


def test_a_study_page_shows_progress_front_and_trials_with_reasons(
    client: TestClient, site: Site
) -> None:
    study = site.study()
    site.run(study)
    site.trial(study, 0, quality=0.9, test_quality=0.88, throughput=100.0, ratio=0.8)
    site.trial(study, 1, quality=0.95, throughput=50.0, ratio=1.6)
    site.trial(study, 2, state=TrialState.INFEASIBLE, reason="parameters: 900 is over 500")
    answer = client.get(f"/studies/{study.id}")
    page = Elements(answer.text)
    links = {link["href"] for link in page.all("a")}
    for number in (0, 1):
        assert f"/v1/studies/{study.id}/trials/{number}/checkpoint" in links
        assert f"/v1/studies/{study.id}/trials/{number}/report?format=html" in links
    for text in ("0.9", "0.88", "0.80 ×", "1.60 ×", "parameters: 900 is over 500"):
        assert text in page.text, text
    assert "accuracy" in page.text
    assert page.all("main")[0]["data-refresh"]
    assert_strict(answer)


def test_the_plot_places_better_points_higher_and_larger_ones_to_the_right(
    client: TestClient, site: Site
) -> None:
    study = site.study()
    values = [(0.7, 100, 10.0, 0.5), (0.8, 1000, 9.0, 1.0), (0.9, 10_000, 8.0, 2.0)]
    for number, (quality, parameters, speed, ratio) in enumerate(values):
        site.trial(
            study, number, quality=quality, parameters=parameters, throughput=speed, ratio=ratio
        )
    page = client.get(f"/studies/{study.id}").text
    marks = page.split('<g class="marks">')[1].split("</g>")[0]
    found = re.findall(r'cx="([\d.]+)" cy="([\d.]+)" r="7" fill="(#\w{6})"', marks)
    x, y = [float(mark[0]) for mark in found], [float(mark[1]) for mark in found]
    # Tenfold sizes are equally far apart, and so are qualities that are.
    assert x[1] - x[0] == x[2] - x[1] > 0
    assert abs((y[0] - y[1]) - (y[1] - y[2])) < 0.2
    assert y[0] > y[1] > y[2]
    assert len({mark[2] for mark in found}) == 3
    assert "10,000" in page
    assert "parameters (logarithmic)" in page
    assert "accuracy" in page


@pytest.mark.parametrize("sizes", [(700, 1500), (1210, 1211), (1, 2), (5, 9_000_000)])
def test_an_axis_always_names_several_sizes_in_their_places(
    client: TestClient, site: Site, sizes: tuple[int, int]
) -> None:
    study = site.study()
    for number, parameters in enumerate(sizes):
        site.trial(
            study, number, quality=0.5 + number / 4, parameters=parameters, throughput=1.0 + number
        )
    page = client.get(f"/studies/{study.id}").text
    axes = page.split('<g class="axes">')[1].split("</g>")[0]
    found = re.findall(r'<text x="([\d.]+)" y="382" text-anchor="middle">([\d,]+)<', axes)
    places = [(float(x), int(label.replace(",", ""))) for x, label in found]
    assert len(places) >= 2
    assert places == sorted(set(places))
    assert all(70 <= x <= 640 for x, _ in places)


def test_a_plot_of_one_point_or_of_points_without_throughput_is_drawn(
    client: TestClient, site: Site
) -> None:
    alone = site.study(objectives=["quality", "parameters"])
    site.trial(alone, 0, quality=1.0)
    assert '<svg class="plot"' in client.get(f"/studies/{alone.id}").text
    site.trial(alone, 1, quality=1.0)
    assert '<svg class="plot"' in client.get(f"/studies/{alone.id}").text


def test_an_ended_study_refreshes_no_more(client: TestClient, site: Site) -> None:
    study = site.study()
    site.finish(study, StudyState.FAILED)
    page = Elements(client.get(f"/studies/{study.id}").text)
    assert "data-refresh" not in page.all("main")[0]
    assert page.all("script") == []


def test_what_a_user_wrote_is_shown_and_never_run(client: TestClient, site: Site) -> None:
    evil = '"><script>alert(1)</script><img src=x onerror=alert(1)>'
    study = site.study(name=evil)
    site.trial(study, 0, state=TrialState.FAILED, reason=evil)
    for path in ("/", f"/studies/{study.id}"):
        answer = client.get(path)
        assert evil not in answer.text
        assert evil in Elements(answer.text).text
        assert_strict(answer)


def test_assets_are_served_with_their_types(client: TestClient) -> None:
    for name, kind in (
        ("style.css", "text/css"),
        ("refresh.js", "text/javascript"),
        ("icon.svg", "image/svg+xml"),
    ):
        answer = client.get(f"/assets/{name}")
        assert answer.headers["content-type"].startswith(kind)
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "http" not in answer.text.replace("http://www.w3.org/2000/svg", "")


def test_a_page_of_no_study_is_a_404(client: TestClient) -> None:
    assert client.get("/studies/none").status_code == 404


def test_a_study_shows_how_its_front_grew_and_what_mattered(client: TestClient, site: Site) -> None:
    study = site.study()
    page = client.get(f"/studies/{study.id}").text
    assert "Growth of the hypervolume" not in page
    assert "What mattered" not in page
    for number in range(12):
        site.trial(study, number, quality=0.5 + number % 2 / 4 + number / 1000, throughput=9.0)
    for number, volume in enumerate((0.25, 0.5, 0.75)):
        payload: dict[str, Json] = {
            "trials": [number],
            "hypervolume": volume,
            "trial": number,
            "epochs_trained": 10 * number,
            "wall_seconds": 1.5,
        }
        with site.database.write() as session:
            Events(session).append(study.id, "front", payload, now())
    answer = client.get(f"/studies/{study.id}")
    assert_strict(answer)
    elements = Elements(answer.text)
    (line,) = elements.all("polyline")
    corners = [tuple(map(float, corner.split(","))) for corner in str(line["points"]).split()]
    assert len(corners) == 6
    across, down = ([corner[side] for corner in corners] for side in (0, 1))
    assert across == sorted(across)
    assert down == sorted(down, reverse=True), "a picture's y axis points down"
    assert "trial 2: 0.75 after 20 epochs" in elements.text
    assert "rnn.hidden_size" in elements.text
