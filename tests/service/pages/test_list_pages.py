"""The list of studies with what is done from it, devices, and fronts side by side."""

from datetime import timedelta

from starlette.testclient import TestClient

from service.rendering.filters import moment
from storage.records import StudyLabels, TrialState
from storage.repositories.studies import Studies
from tests.service.api.test_devices import coordinator
from tests.service.pages.test_pages import Elements, assert_strict
from tests.service.site import Site, now

BROWSER = {"Accept": "text/html"}


def studies_on(page: str) -> list[str]:
    return [str(box["value"]) for box in Elements(page).all("input") if box["name"] == "studies"]


def test_the_list_is_searched_by_words_state_and_tag(client: TestClient, site: Site) -> None:
    first, second, third = (site.study(name=name) for name in ("<b>rows</b>", "pixels", "gru"))
    with site.database.write() as session:
        labels = StudyLabels(tags=("all rows", "a&b"), notes="of <i>notes</i>")
        Studies(session).set_labels(second.id, labels)
    site.run(third)
    page = client.get("/").text
    assert studies_on(page) == [third.id, second.id, first.id]
    assert "&lt;b&gt;rows" in page
    assert "<i>" not in page
    assert 'href="/?tag=a%26b"' in page
    for query, found in (
        ("text=ROWS", [second.id, first.id]),
        ("text=" + first.id[:8], [first.id]),
        ("tag=a%26b", [second.id]),
        ("state=running", [third.id]),
        ("text=rows&state=running", []),
        ("text=&state=", [third.id, second.id, first.id]),
    ):
        answer = client.get(f"/?{query}")
        assert studies_on(answer.text) == found, query
        assert_strict(answer)
        assert ("No study matches" in answer.text) == (not found)


def test_older_studies_keep_what_was_asked(client: TestClient, site: Site) -> None:
    for _ in range(51):
        site.study(name="rows & more")
    page = client.get("/?text=rows+%26+more").text
    (older,) = (str(link["href"]) for link in Elements(page).all("a") if "cursor" in str(link))
    assert "text=rows+%26+more" in older
    assert len(studies_on(client.get(older).text)) == 1


def test_a_study_is_renamed_and_tagged_on_a_page(client: TestClient, site: Site) -> None:
    study = site.study(name="before")
    place = f"/studies/{study.id}/edit"
    form = client.get(place)
    assert 'value="before"' in form.text
    assert_strict(form)
    sent = {"name": " after ", "tags": "gru,  baseline,gru,,", "notes": "one\r\ntwo"}
    saved = client.post(place, data=sent, follow_redirects=False)
    assert (saved.status_code, saved.headers["location"]) == (303, "/")
    changed = client.get(f"/v1/studies/{study.id}").json()
    assert (changed["name"], changed["tags"]) == ("after", ["gru", "baseline"])
    assert changed["notes"] == "one\ntwo"
    assert 'value="gru, baseline"' in client.get(place).text
    wrong = client.post(place, data={"name": "", "tags": "x" * 51, "notes": "kept"})
    assert wrong.status_code == 422
    assert 'id="name-fault"' in wrong.text
    assert 'id="tags-fault"' in wrong.text
    assert ">kept</textarea>" in wrong.text
    assert client.get(f"/v1/studies/{study.id}").json()["name"] == "after"


def test_deleting_asks_first_and_says_what_goes(client: TestClient, site: Site) -> None:
    study = site.study(name="to go")
    site.run(study)
    site.trial(study, 0, quality=0.5)
    place = f"/studies/{study.id}/delete"
    question = client.get(place).text
    assert "Cancel it before you delete it" in question
    assert f'action="{place}"' not in question
    refused = client.post(place, headers=BROWSER)
    assert refused.status_code == 409
    assert "cancel it first" in refused.text
    site.finish(study)
    question = client.get(place)
    assert "Delete “to go”?" in question.text
    assert "1 trial and " in question.text
    assert " 0 bytes" not in question.text
    assert_strict(question)
    assert client.get(f"/v1/studies/{study.id}").status_code == 200
    gone = client.post(place, follow_redirects=False)
    assert (gone.status_code, gone.headers["location"]) == (303, "/")
    assert client.get(f"/v1/studies/{study.id}").status_code == 404


def test_times_are_marked_for_the_readers_zone() -> None:
    at = now()
    assert moment(None) == "–"
    assert f'<time datetime="{at.isoformat()}">' in moment(at)
    assert f"{at:%Y-%m-%d %H:%M:%S} UTC</time>" in moment(at)


def test_devices_are_a_page(client: TestClient, site: Site) -> None:
    assert "No device is connected" in client.get("/devices").text
    study = site.study(name="busy <study>")
    site.run(study)
    site.trial(study, 3, state=TrialState.RUNNING)
    with site.database.write() as session:
        until = now() + timedelta(hours=1)
        Studies(session).claim(study.id, owner="ada:/data", now=now(), until=until)
    site.lease(study, 3)
    coordinator(site, "ada:/data")
    answer = client.get("/devices")
    assert_strict(answer)
    page = Elements(answer.text)
    for words in ("a GPU", "ada, cuda:GPU-1", "gpu-0-1", "cpu-0", "busy <study>", "trial 3"):
        assert words in page.text, words
    assert f"/studies/{study.id}/trials/3" in {link["href"] for link in page.all("a")}
    assert page.text.count("busy") == 1
    assert "Nothing is measured now." in page.text


def test_fronts_stand_side_by_side(client: TestClient, site: Site) -> None:
    studies = [site.study(name=f"study {number}") for number in range(2)]
    for study, quality in zip(studies, (0.8, 0.9), strict=True):
        site.run(study)
        site.trial(study, 0, quality=quality, throughput=50.0)
    both = ",".join(study.id for study in studies)
    answer = client.get(f"/compare?studies={both}")
    assert answer.status_code == 200
    assert_strict(answer)
    again = client.get("/compare", params={"studies": [study.id for study in studies]})
    assert again.text == answer.text
    assert answer.text.count('<tr class="leads">') == 1, "of two points of one size one is best"
    assert "different" not in answer.text
    (drawn,) = [part for _, part in Elements(answer.text).found if "data-figure" in part]
    assert drawn["data-figure"] == f"/v1/figures/compare?studies={both}"
    assert client.get(str(drawn["data-figure"])).status_code == 200
    leader = answer.text.split('<tr class="leads">')[1]
    assert f"/studies/{studies[1].id}/trials/0" in leader.partition("</tr>")[0]
    assert studies_on(answer.text) == [study.id for study in reversed(studies)]


def test_points_that_are_equal_are_all_best(client: TestClient, site: Site) -> None:
    studies = [site.study(name=f"study {number}") for number in range(3)]
    for study, quality in zip(studies, (0.9, 0.8, 0.9), strict=True):
        site.run(study)
        site.trial(study, 0, quality=quality, throughput=50.0)
    answer = client.get("/compare", params={"studies": [study.id for study in studies]})
    assert answer.text.count('<tr class="leads">') == 2


def test_what_does_not_compare_is_said(client: TestClient, site: Site) -> None:
    one = site.study()
    other = site.study(task={"kind": "addition"})
    answer = client.get(f"/compare?studies={one.id},{other.id}")
    assert answer.status_code == 200
    assert "The studies have different metrics" in answer.text
    assert "data-figure" not in answer.text
    pixels = site.study(task={"kind": "digits", "layout": "pixels"})
    near = client.get(f"/compare?studies={one.id},{pixels.id}")
    assert "The studies have different tasks" in near.text
    assert "Select 2 to 6 studies" in client.get("/compare").text
    many = client.get("/compare?studies=" + ",".join(map(str, range(7))), headers=BROWSER)
    assert many.status_code == 422
    assert "7 studies are named; allowed are at most 6" in many.text
    assert client.get("/compare?studies=none", headers=BROWSER).status_code == 404
