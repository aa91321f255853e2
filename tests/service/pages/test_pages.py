import re
from html.parser import HTMLParser
from typing import Any

import pytest
from starlette.testclient import TestClient

from service.rendering.plots.axes import axis
from storage.endings import TrialCause
from storage.records import Json, StudyState, TrialOutcome, TrialState
from storage.repositories.events import Events
from storage.repositories.trials import Trials
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
                assert re.match(r"/(?!/)|#", attributes[name] or ""), attributes
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
    shown = re.findall(r'href="/studies/([0-9a-f]+)"', first.text + second.text)
    assert sorted(shown) == sorted(ids)


def plot_of(page: str) -> str:
    """The picture of the front."""
    return page.split('<svg class="plot"')[1].split("</svg>")[0]


def group_of(picture: str, name: str) -> str:
    return picture.split(f'<g class="{name}"')[1].split("</g>")[0]


def marks_of(page: str) -> list[tuple[float, float, str]]:
    found = re.findall(
        r'<circle cx="([\d.]+)" cy="([\d.]+)" r="7" fill="(#\w{6})"',
        group_of(plot_of(page), "marks"),
    )
    return [(float(x), float(y), colour) for x, y, colour in found]


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
        assert f"/studies/{study.id}/trials/{number}" in links
    for part in ("report", "bundle", "front?format=csv", "trials?format=csv"):
        assert f"/v1/studies/{study.id}/{part}" in links
    for text in ("0.9", "0.88", "0.80 ×", "1.60 ×", "parameters: 900 is over 500"):
        assert text in page.text, text
    assert "accuracy" in page.text
    assert str(page.all("main")[0]["data-events"]).startswith(f"/v1/studies/{study.id}/events?")
    assert_strict(answer)


def test_the_stream_that_a_page_names_begins_behind_what_it_shows(
    client: TestClient, site: Site
) -> None:
    study = site.study()
    site.trial(study, 0, quality=0.9)
    (main,) = Elements(client.get(f"/studies/{study.id}").text).all("main")
    assert str(main["data-events"]).endswith(f"?after={site.last_event(study)}")
    site.event(study, file="new")
    site.finish(study)
    stream = client.get(str(main["data-events"])).text
    assert re.findall(r"^event: (.*)$", stream, re.M) == ["download", "study"]


def test_a_place_behind_the_last_event_is_refused(client: TestClient, site: Site) -> None:
    study = site.study()
    answer = client.get(f"/v1/studies/{study.id}/events", params={"after": 99})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["path"] == "after"


def test_the_plot_places_better_points_higher_and_larger_ones_to_the_right(
    client: TestClient, site: Site
) -> None:
    study = site.study(parametrizations=["low_rank"])
    values = [(0.7, 100, 10.0, 0.5), (0.8, 1000, 9.0, 1.0), (0.9, 10_000, 8.0, 2.0)]
    for number, (quality, parameters, speed, ratio) in enumerate(values):
        site.trial(
            study, number, quality=quality, parameters=parameters, throughput=speed, ratio=ratio
        )
    page = client.get(f"/studies/{study.id}").text
    found = marks_of(page)
    x, y = [mark[0] for mark in found], [mark[1] for mark in found]
    # Tenfold sizes are equally far apart, and so are qualities that are.
    assert x[1] - x[0] == pytest.approx(x[2] - x[1], abs=0.2)
    assert x[1] > x[0]
    assert y[0] - y[1] == pytest.approx(y[1] - y[2], abs=0.2)
    assert y[0] > y[1]
    assert len({mark[2] for mark in found}) == 3
    assert "10,000" in page
    assert "parameters (logarithmic)" in page


@pytest.mark.parametrize("x", ["quality", "parameters", "throughput"])
@pytest.mark.parametrize("y", ["quality", "parameters", "throughput"])
def test_any_two_objectives_can_be_the_axes(client: TestClient, site: Site, x: str, y: str) -> None:
    study = site.study()
    for number in range(3):
        site.trial(
            study,
            number,
            quality=0.5 + number / 10,
            parameters=100 + 100 * number,
            throughput=9.0 - number,
        )
    answer = client.get(f"/studies/{study.id}", params={"x": x, "y": y})
    assert_strict(answer)
    title = {"quality": "accuracy", "parameters": "parameters", "throughput": "throughput"}
    picture = plot_of(answer.text)
    assert f"over {title[x]}" in picture
    if x != y:
        assert f"Front: {title[y]}" in picture
        (third,) = set(title) - {x, y}
        assert title[third] in group_of(picture, "legend")
    # One step from each point to the next, and the corner between them.
    assert len(re.findall(r'class="stairs" points="([^"]+)"', picture)[0].split()) in (1, 5)


def test_a_point_is_a_link_that_says_its_values(client: TestClient, site: Site) -> None:
    study = site.study()
    site.trial(study, 0, quality=0.75, parameters=1234, throughput=90.0, ratio=1.5)
    page = Elements(client.get(f"/studies/{study.id}").text)
    (mark,) = [link for link in page.all("a") if link.get("id") == "mark-0"]
    assert mark["href"] == f"/studies/{study.id}/trials/0"
    assert "tabindex" not in mark
    for part in ("trial 0", "accuracy 0.75", "1,234 parameters", "90 samples/s", "1.50 ×"):
        assert part in str(mark["aria-label"]), part


def test_a_baseline_is_drawn_where_its_point_is_measured_beside_it(
    client: TestClient, site: Site
) -> None:
    study = site.study(parametrizations=["low_rank"])
    trial = site.trial(study, 1, quality=0.75, parameters=100, throughput=90.0, ratio=1.5)
    path = f"/studies/{study.id}"
    picture = plot_of(client.get(path, params={"x": "parameters", "y": "throughput"}).text)
    assert f"{trial.dense_parameters:,} parameters\n60 samples/s" in picture
    assert "dense baseline" not in group_of(plot_of(client.get(path).text), "baselines")


def test_the_papers_systems_have_a_mark_and_room(client: TestClient, site: Site) -> None:
    study = site.study(presets=["rnn-128"])
    site.trial(study, 0, quality=0.2, parameters=90_000, throughput=1.0)
    site.trial(study, 1, quality=0.75, parameters=100, throughput=90.0)
    page = client.get(f"/studies/{study.id}").text
    assert "trial 0 (rnn-128)" in group_of(plot_of(page), "others")
    assert "a system of the papers" in page


def test_the_axes_fit_the_front_and_tell_what_lies_outside(client: TestClient, site: Site) -> None:
    study = site.study(objectives=["quality", "parameters"])
    site.trial(study, 0, quality=0.9, parameters=100)
    site.trial(study, 1, quality=0.89, parameters=101)
    site.trial(study, 2, quality=0.1, parameters=10_000_000)
    page = client.get(f"/studies/{study.id}").text
    assert "1 more complete trial lies outside the picture" in page
    assert "other-1" in page
    assert "other-2" not in page


@pytest.mark.parametrize("sizes", [(700, 1500), (1210, 1211), (1, 2), (5, 9_000_000)])
def test_an_axis_always_names_several_sizes_in_their_places(
    client: TestClient, site: Site, sizes: tuple[int, int]
) -> None:
    study = site.study()
    for number, parameters in enumerate(sizes):
        site.trial(
            study, number, quality=0.5 + number / 4, parameters=parameters, throughput=1.0 + number
        )
    axes = group_of(plot_of(client.get(f"/studies/{study.id}").text), "axes")
    found = re.findall(r'<text x="([\d.]+)" y="364" text-anchor="middle">([\d.,kM]+)<', axes)
    places = [
        (float(x), float(label.replace(",", "").replace("k", "e3").replace("M", "e6")))
        for x, label in found
    ]
    assert len(places) >= 2
    assert places == sorted(set(places))
    assert all(80 <= x <= 536 for x, _ in places)


@pytest.mark.parametrize(
    "values",
    [(1e-12, 3e250), (-1.7e308, 1.7e308), (0.0, 0.0), (5e-324, 1.0), (1e300, 1.1e300), (-3.0, 2.0)],
)
def test_an_axis_bears_any_values(values: tuple[float, float]) -> None:
    found = axis(values, start=10.0, end=90.0)
    assert 1 <= len(found.ticks) <= 12
    assert all(10 <= tick.at <= 90 for tick in found.ticks)
    assert all(10 <= found.place(value) <= 90 for value in values)


def test_a_plot_of_one_point_or_of_points_without_throughput_is_drawn(
    client: TestClient, site: Site
) -> None:
    alone = site.study(objectives=["quality", "parameters"])
    site.trial(alone, 0, quality=1.0)
    assert '<svg class="plot"' in client.get(f"/studies/{alone.id}").text
    site.trial(alone, 1, quality=1.0)
    assert '<svg class="plot"' in client.get(f"/studies/{alone.id}").text
    answer = client.get(f"/studies/{alone.id}", params={"x": "throughput"})
    assert "No point of the front has a value of both yet." in answer.text


def test_an_ended_study_refreshes_no_more(client: TestClient, site: Site) -> None:
    study = site.study()
    site.finish(study, StudyState.FAILED)
    page = Elements(client.get(f"/studies/{study.id}").text)
    assert "data-events" not in page.all("main")[0]
    assert page.all("meta")[-1].get("http-equiv") != "refresh"
    assert not [form for form in page.all("form") if form["method"] == "post"]


def test_curves_are_of_the_best_or_of_the_trials_that_are_named(
    client: TestClient, site: Site
) -> None:
    study = site.study()
    for number in range(3):
        site.trial(study, number, quality=0.5 + number / 10, throughput=9.0 - number)
        for epoch in (1, 2):
            site.epoch(study, number, epoch)
    page = client.get(f"/studies/{study.id}").text
    for name in ("training loss", "gradient, first", "gradient, last"):
        assert name in page
    # The site's models have no structured weights to tell of.
    assert "spectral margin" not in page
    assert "accuracy over epochs, of trial 0, 1, 2" in page
    page = client.get(f"/studies/{study.id}", params={"curves": "2, 77,1"}).text
    assert "accuracy over epochs, of trial 1, 2" in page
    assert client.get(f"/studies/{study.id}", params={"curves": "x"}).status_code == 422


def test_trials_are_filtered_sorted_and_paged(client: TestClient, site: Site) -> None:
    study = site.study()
    for number in range(52):
        site.trial(study, number, quality=(number * 7 % 52) / 100)
    site.trial(study, 52, state=TrialState.FAILED, reason="boom")
    path = f"/studies/{study.id}"

    def shown(**query: Any) -> list[int]:
        table = client.get(path, params=query).text.split('id="table"')[1].split("</table>")[0]
        return [int(number) for number in re.findall(r'/trials/(\d+)">\d+</a></td>', table)]

    assert shown() == list(range(50))
    assert shown(page=2) == [50, 51, 52]
    assert shown(outcome="failed") == [52]
    best = sorted(range(52), key=lambda number: -(number * 7 % 52))
    assert shown(sort="quality", order="down") == best[:50]
    # The one without a quality comes last, whichever way.
    assert shown(sort="quality", order="up", page=2) == [*best[1::-1], 52]
    page = client.get(path, params={"sort": "quality", "order": "down", "outcome": "complete"}).text
    assert "sort=quality" in page
    assert "outcome=complete&amp;sort=quality&amp;order=down&amp;page=2#trials" in page


@pytest.mark.parametrize("path", ["?page=0", "?x=size", "?outcome=lost", "?sort=why"])
def test_a_choice_that_is_none_is_a_422(client: TestClient, site: Site, path: str) -> None:
    study = site.study()
    assert client.get(f"/studies/{study.id}{path}").status_code == 422


def test_a_study_is_held_resumed_and_ended_by_buttons(client: TestClient, site: Site) -> None:
    study = site.study()
    site.run(study)
    path = f"/studies/{study.id}"
    ours = {"Origin": "http://localhost:8080"}

    def offered() -> set[str | None]:
        page = Elements(client.get(path).text)
        return {form["action"] for form in page.all("form") if form["method"] == "post"}

    assert offered() == {f"{path}/pause", f"{path}/cancel"}
    answer = client.post(f"{path}/pause", headers=ours, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, path)
    assert offered() == {f"{path}/resume", f"{path}/cancel"}
    client.post(f"{path}/resume", headers=ours)
    assert offered() == {f"{path}/pause", f"{path}/cancel"}
    assert client.post(f"{path}/cancel", headers={"Origin": "http://elsewhere"}).status_code == 403
    client.post(f"{path}/cancel", headers=ours)
    # The coordinator ends it; until then there is nothing more to ask for.
    assert offered() == set()
    assert "cancelled by" in client.get(path).text


def test_states_choose_studies(client: TestClient, site: Site) -> None:
    running, waiting = site.study(name="one"), site.study(name="two")
    site.run(running)
    page = client.get("/", params={"state": "running"}).text
    assert running.id in page
    assert waiting.id not in page
    assert "No study is failed." in client.get("/", params={"state": "failed"}).text
    assert waiting.id in client.get("/", params={"state": ""}).text


def test_a_trial_has_a_page_with_all_that_is_known_of_it(client: TestClient, site: Site) -> None:
    study = site.study()
    site.run(study)
    trial = site.trial(
        study, 1, quality=0.75, test_quality=0.7, throughput=90.0, ratio=1.5, continues=0
    )
    site.lease(study, 1)
    site.epoch(study, 1, 1)
    answer = client.get(f"/studies/{study.id}/trials/1")
    assert_strict(answer)
    page = Elements(answer.text)
    links = {link["href"] for link in page.all("a")}
    path = f"/v1/studies/{study.id}/trials/1"
    assert {f"/studies/{study.id}", f"{path}/checkpoint", f"{path}/log", path} <= links
    assert f"/studies/{study.id}/trials/0" in links
    for text in ("0.75", "0.7", "90", "1.50 ×", "batch size", "64", "cpu-0", "rnn.hidden_size"):
        assert text in page.text, text
    assert str(trial.hyperparameters["rnn.hidden_size"]) in page.text
    assert "accuracy over epochs, of trial 1" in answer.text
    assert client.get(f"/studies/{study.id}/trials/9").status_code == 404


def test_a_trial_is_measured_again_by_a_button(client: TestClient, site: Site) -> None:
    study = site.study()
    site.trial(study, 0, quality=0.75, throughput=90.0)
    site.finish(study)
    path = f"/studies/{study.id}/trials/0"
    (form,) = Elements(client.get(path).text).all("form")
    assert form == {"action": f"{path}/measure", "method": "post"}
    ours = {"Origin": "http://localhost:8080"}
    answer = client.post(f"{path}/measure", headers=ours, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, path)
    page = Elements(client.get(path).text)
    assert "waiting" in page.text
    # The study has ended, and its stream with it.
    assert page.all("main")[0]["data-poll"]


def test_a_trial_says_why_it_was_stopped(client: TestClient, site: Site) -> None:
    study = site.study()
    site.trial(study, 0, state=TrialState.RUNNING)
    reason = "pareto_gain at epoch 2: could add 0.001, less than 0.02"
    with site.database.write() as session:
        Trials(session).set_stopping(
            study.id,
            0,
            {
                "rule": "pareto_gain",
                "epoch": 2,
                "gain": 0.001,
                "threshold": 0.02,
                "before": [3],
                "reason": reason,
            },
        )
        outcome = TrialOutcome(cause=TrialCause.EARLY_STOPPING, detail=reason)
        Trials(session).end(study.id, 0, state=TrialState.STOPPED, at=now(), outcome=outcome)
    page = Elements(client.get(f"/studies/{study.id}/trials/0").text)
    assert "Why it was stopped" in page.text
    assert {"pareto_gain", "0.001", "0.02"} <= set(page.text)
    assert f"/studies/{study.id}/trials/3" in {link["href"] for link in page.all("a")}


def test_what_a_user_wrote_is_shown_and_never_run(client: TestClient, site: Site) -> None:
    evil = '"><script>alert(1)</script><img src=x onerror=alert(1)>'
    study = site.study(name=evil)
    site.trial(study, 0, state=TrialState.FAILED, reason=evil)
    for path in ("/", f"/studies/{study.id}", f"/studies/{study.id}/trials/0"):
        answer = client.get(path)
        assert evil not in answer.text
        assert evil in Elements(answer.text).text
        assert_strict(answer)


def test_assets_are_served_with_their_types(client: TestClient) -> None:
    for name, kind in (
        ("style.css", "text/css"),
        ("live.js", "text/javascript"),
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
    assert "The front has not changed twice yet." in page
    assert "Too few trials have ended to tell." in page
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
    (line,) = [line for line in elements.all("polyline") if line["class"] == "growth"]
    corners = [tuple(map(float, corner.split(","))) for corner in str(line["points"]).split()]
    assert len(corners) == 6
    across, down = ([corner[side] for corner in corners] for side in (0, 1))
    assert across == sorted(across)
    assert down == sorted(down, reverse=True), "a picture's y axis points down"
    assert "trial 2: 0.75 after 20 epochs" in elements.text
    assert "PED-ANOVA" in answer.text
    assert "rnn.hidden_size" in elements.text
