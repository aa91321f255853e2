import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from typing import Any

import pytest
from starlette.testclient import TestClient

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


def test_an_ended_study_refreshes_no_more(client: TestClient, site: Site) -> None:
    study = site.study()
    site.finish(study, StudyState.FAILED)
    page = Elements(client.get(f"/studies/{study.id}").text)
    assert "data-events" not in page.all("main")[0]
    assert page.all("meta")[-1].get("http-equiv") != "refresh"
    assert not [form for form in page.all("form") if form["method"] == "post"]


def rows_of(page: str) -> list[int]:
    table = page.split('id="table"')[1].split("</form>")[0]
    return [int(number) for number in re.findall(r'<tr data-trial="(\d+)"', table)]


def test_trials_are_filtered_and_sorted_by_every_value(client: TestClient, site: Site) -> None:
    study = site.study()
    for number in range(6):
        site.trial(study, number, quality=(number * 5 % 6) / 10, parameters=100 + number)
    site.trial(study, 6, state=TrialState.FAILED, reason="boom")
    path = f"/studies/{study.id}"

    def shown(**query: Any) -> list[int]:
        answer = client.get(path, params=query)
        assert_strict(answer)
        return rows_of(answer.text)

    assert shown() == list(range(7))
    assert shown(outcome="failed") == [6]
    best = sorted(range(6), key=lambda number: -(number * 5 % 6))
    # The one without a quality comes last, whichever way.
    assert shown(sort="quality", order="down") == [*best, 6]
    assert shown(sort="quality") == [*best[::-1], 6]
    # The site draws the low end of each dimension for even numbers.
    assert shown(where="hidden_size<=8 accuracy>0.1") == [2, 4]
    assert shown(where="rnn.hidden_size>8 parameters<105") == [1, 3]
    assert shown(where="outcome!=failed parametrization=dense", sort="number", order="down") == [
        number for number in (5, 4, 3, 2, 1, 0) if number in shown(where="parametrization=dense")
    ]
    assert shown(trials="1-2,5", only="selected") == [1, 2, 5]
    page = client.get(path, params={"sort": "quality", "where": "accuracy>0.1"}).text
    assert "where=accuracy%3E0.1&amp;sort=quality&amp;order=down#trials" in page


def test_columns_that_end_alike_have_their_whole_names(client: TestClient, site: Site) -> None:
    study = site.study(parametrizations=["low_rank", "low_rank_diagonal"])
    site.trial(study, 0, quality=0.5, parametrization="low_rank")
    site.trial(study, 1, quality=0.6, parametrization="low_rank_diagonal")

    def headings(*columns: str) -> list[str]:
        page = client.get(f"/studies/{study.id}", params={"columns": columns}).text
        head = page.split('id="table"')[1].split("</thead>")[0]
        return [one.strip() for one in Elements(head).text if one]

    both = headings("low_rank.d", "low_rank_diagonal.d", "training.learning_rate")
    assert both[-3:] == ["low_rank.d", "low_rank_diagonal.d", "learning_rate"]
    assert headings("low_rank.d", "training.learning_rate")[-2:] == ["d", "learning_rate"]
    # The reason of an outcome stands beside it.
    assert both[both.index("Outcome") + 1] == "Why"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("acuracy>0.9", "No trial has 'acuracy'. Did you mean accuracy"),
        ("d", "'d' is no condition. Write a name, one of"),
        ("parameters<few", "'few' is no number. < takes one"),
    ],
)
def test_a_filter_that_cannot_be_read_says_what_is_allowed(
    client: TestClient, site: Site, words: str, told: str
) -> None:
    study = site.study()
    site.trial(study, 0, quality=0.5)
    page = client.get(f"/studies/{study.id}", params={"where": words})
    assert told in " ".join(Elements(page.text).text)
    assert rows_of(page.text) == [0], "all of them are shown"


def test_thousands_of_trials_are_cut_into_pages(client: TestClient, site: Site) -> None:
    study = site.study()
    first = site.trial(study, 0, quality=0.5)
    with site.database.write() as session:
        for number in range(1, 502):
            Trials(session).add(replace(first, number=number, artifacts={}, measurement_id=None))
    path = f"/studies/{study.id}"
    page = client.get(path).text
    assert rows_of(page) == list(range(100))
    assert "502 of 502 trials" in page
    assert "page 1 of 6" in page
    assert rows_of(client.get(path, params={"page": 6}).text) == [500, 501]
    assert rows_of(client.get(path, params={"where": "trial<500"}).text) == list(range(500))


def test_pinned_trials_stand_side_by_side_with_their_differences(
    client: TestClient, site: Site
) -> None:
    study = site.study(parametrizations=["low_rank"])
    for number in range(8):
        site.trial(study, number, quality=0.5, parameters=100 + number)
    page = client.get(f"/studies/{study.id}", params={"pins": ["0-4", "6", "7"]}).text
    pinned = page.split('id="pinned"')[1].split("</section>")[0]
    assert re.findall(r'aria-label="Unpin trial (\d+)"', pinned) == ["0", "1", "2", "3", "4", "6"]
    differs = re.findall(r'<tr class="differs"><th scope="row">([^<]+)</th>', pinned)
    assert {"Parameters", "rnn.hidden_size"} <= set(differs)
    assert "accuracy" not in differs
    # Why there is no dense file is said beside the files that there are.
    assert pinned.count("report?format=html") == 6


def test_what_is_selected_is_ticked_and_goes_into_a_csv(client: TestClient, site: Site) -> None:
    study = site.study()
    for number in range(4):
        site.trial(study, number, quality=0.5, parameters=100 + number)
    page = client.get(f"/studies/{study.id}", params={"trials": ["1", "3"]}).text
    assert re.findall(r'name="trials" value="(\d+)"[^>]*checked', page) == ["1", "3"]
    (address,) = re.findall(r'href="([^"]+numbers=[^"]+)"', page)
    lines = client.get(unescape(address)).text.splitlines()
    assert [line.split(",")[0] for line in lines] == ["number", "1", "3"]


def test_the_recommendation_stands_above_the_plot(client: TestClient, site: Site) -> None:
    study = site.study(objectives=["quality", "parameters"])
    site.trial(study, 0, quality=0.9, parameters=100)
    site.trial(study, 1, quality=0.91, parameters=1000)
    page = client.get(f"/studies/{study.id}").text
    before, _, after = page.partition("data-figure=")
    assert "Smallest within noise of the best: " in before
    assert "100 parameters, accuracy 0.9 against 0.91 of trial 1 with 1,000" in before
    assert after


@pytest.mark.parametrize(
    "path", ["?page=0", "?x=size", "?outcome=lost", "?trials=x", "?across=miles"]
)
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
    assert "No study matches." in client.get("/", params={"state": "failed"}).text
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
    assert f"{path.rpartition('/trials')[0]}/figures/curves?trials=1" in answer.text
    assert client.get(f"/studies/{study.id}/trials/9").status_code == 404


def test_an_attempt_that_another_one_goes_on_from_was_interrupted(
    client: TestClient, site: Site
) -> None:
    """Nothing of it is lost, which is what the state is called in the API."""
    study = site.study()
    site.run(study)
    site.trial(study, 0, state=TrialState.RUNNING)
    for number in (1, 2):
        site.lease(study, 0, attempt=number)
    page = client.get(f"/studies/{study.id}/trials/0").text
    assert '<span class="state lost">interrupted</span>' in page
    states = [
        attempt["state"]
        for attempt in client.get(f"/v1/studies/{study.id}/trials/0").json()["attempts"]
    ]
    assert states == ["lost", "running"]


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
        ("explorer.css", "text/css"),
        ("live.js", "text/javascript"),
        ("explorer.js", "text/javascript"),
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
    assert "The front has not changed yet." in page
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
    assert re.findall(r'<td class="n">(0\.\d+)</td>', answer.text.split("volume-table")[1])[:3] == [
        "0.25",
        "0.5",
        "0.75",
    ]
    assert "PED-ANOVA" in answer.text
    # Twelve trials are too few to rank by.
    assert "rnn.hidden_size (too few trials)" in elements.text
