from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from service.app import create_app
from service.auth.api_keys import create_key
from storage.accounts.quotas import Quotas
from storage.records import StudyState, TrialState
from storage.repositories.collections import Collections
from storage.repositories.studies import Studies
from tests.service.pages.test_pages import assert_strict
from tests.service.site import SMALL_SPEC, Site
from tests.service.uploading import CSV

TWO: dict[str, Any] = {
    **{name: part for name, part in SMALL_SPEC.items() if name != "task"},
    "name": "two layouts",
    "objectives": ["quality", "parameters"],
    "tasks": [{"kind": "digits"}, {"kind": "digits", "layout": "pixels"}],
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One for all: each test looks at collections of its own."""
    site = Site(tmp_path_factory.mktemp("collections"))
    yield site
    site.close()


@pytest.fixture(scope="module")
def client(site: Site) -> Iterator[TestClient]:
    here = ("127.0.0.1", 50000)
    app = create_app(site.settings)
    with TestClient(app, base_url="http://localhost:8080", client=here) as client:
        yield client


def listed(client: TestClient) -> list[str]:
    """What is stored: collections and studies."""
    return [
        one["id"]
        for path in ("/v1/collections", "/v1/studies")
        for one in client.get(f"{path}?limit=200").json()["items"]
    ]


@contextmanager
def nothing_stored(client: TestClient) -> Iterator[None]:
    before = listed(client)
    yield
    assert listed(client) == before


def faults_of(answer: Any) -> dict[str, str]:
    assert answer.status_code == 422, answer.text
    return {fault["path"]: fault["message"] for fault in answer.json()["errors"]}


def uploaded(client: TestClient, name: str, line: bytes) -> str:
    answer = client.post("/v1/datasets", files={"file": (name, CSV + line)})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def filled(client: TestClient, site: Site) -> dict[str, Any]:
    """A collection of two finished studies, each with trials of two kinds."""
    collection = client.post("/v1/collections", json=TWO).json()
    for index, member in enumerate(collection["studies"]):
        with site.database.read() as session:
            study = Studies(session).get(member["study"])
        site.run(study)
        best = 0.9 - 0.1 * index
        site.trial(study, 0, parametrization="dense", quality=best, test_quality=0.5)
        site.trial(study, 2, parametrization="dense", quality=best - 0.2, test_quality=0.25)
        site.trial(study, 1, parametrization="low_rank", quality=best - 0.1, test_quality=0.75)
        site.finish(study)
    return client.get(collection["links"]["collection"]).json()


def test_a_document_of_two_tasks_makes_a_study_of_each(client: TestClient) -> None:
    answer = client.post("/v1/collections", json=TWO)
    assert answer.status_code == 202, answer.text
    found = answer.json()
    assert answer.headers["location"] == found["links"]["collection"]
    assert found["state"] == "queued"
    assert found["states"] == {"queued": 2}
    assert [one["row"] for one in found["studies"]] == ["digits", "digits 2"]
    assert [one["name"] for one in found["studies"]] == [
        "two layouts: digits",
        "two layouts: digits 2",
    ]
    layouts = []
    for one in found["studies"]:
        study = client.get(one["links"]["study"]).json()
        assert study["spec"]["budget"]["trials"] == 4
        layouts.append(study["spec"]["task"]["layout"])
    assert layouts == ["rows", "pixels"]
    assert client.get(found["links"]["collection"]).json() == found
    entry = client.get("/v1/collections").json()["items"][0]
    assert entry == {name: found[name] for name in entry}


def test_a_list_of_uploads_goes_by_their_names(client: TestClient) -> None:
    first, second = (
        uploaded(client, "cats.csv", b"cat,1,2,3\n"),
        uploaded(client, "dogs.csv", b"cow,1,2,1\n"),
    )
    document = {**TWO, "task": {"kind": "dataset", "id": [first, second]}}
    del document["tasks"]
    found = client.post("/v1/collections", json=document).json()
    assert [one["row"] for one in found["studies"]] == ["cats.csv", "dogs.csv"]
    assert found["studies"][1]["name"] == "two layouts: dogs.csv"


def test_a_dry_run_describes_each_study_and_stores_nothing(client: TestClient) -> None:
    with nothing_stored(client):
        answer = client.post("/v1/collections?dry_run=true", json=TWO)
    assert answer.status_code == 200, answer.text
    assert [one["row"] for one in answer.json()["studies"]] == ["digits", "digits 2"]
    assert len(answer.json()["studies"][0]["study"]["candidates"]) == 2


def test_one_bad_set_of_three_stores_nothing_and_is_named(client: TestClient) -> None:
    good = [uploaded(client, f"{one}.csv", b"dog,1,1,%d\n" % one) for one in (1, 2)]
    document = {**TWO, "task": {"kind": "dataset", "id": [good[0], "nowhere", good[1]]}}
    del document["tasks"]
    with nothing_stored(client):
        found = faults_of(client.post("/v1/collections", json=document))
    assert list(found) == ["task.id.1"]
    assert "nowhere" in found["task.id.1"]


@pytest.mark.parametrize(
    ("changes", "path", "words"),
    [
        (
            {"tasks": None, "task": {"kind": "ucr", "name": ["Coffee", "Beef", "Coffee"]}},
            "task.name.2",
            ("'Coffee' stands twice",),
        ),
        ({"tasks": [{"kind": "digits"}, {"kind": "digits"}]}, "tasks.1", ("stands twice",)),
        (
            {"tasks": [{"kind": "digits"}, {"kind": "digits", "layout": "columns"}]},
            "tasks.1.layout",
            ("columns", "pixels"),
        ),
        ({"tasks": [{"kind": "digits"}, {"kind": "digitz"}]}, "tasks.1.kind", ("digitz", "mnist")),
        ({"tasks": []}, "", ("tasks is empty",)),
        ({"tasks": None}, "", ("neither",)),
        ({"task": {"kind": "digits"}}, "", ("both",)),
        ({"tasks": None, "task": {"kind": "digits"}}, "", ("no list",)),
        ({"naem": "x"}, "naem", ("unknown key", "name")),
        ({"budget": {"trials": 0}}, "budget.trials", ("greater than or equal to 1",)),
        ({"limits": {"parameters": 3}}, "limits.parameters", ("3", "fewer")),
        (
            {"collection_budget": {"trails": 3}},
            "collection_budget.trails",
            ("unknown key", "trials", "device_hours"),
        ),
        (
            {
                "tasks": None,
                "task": {"kind": "ucr", "name": [f"set {number}" for number in range(201)]},
            },
            "",
            ("201", "200"),
        ),
    ],
)
def test_a_wrong_document_is_refused_where_it_is_wrong(
    client: TestClient, changes: dict[str, Any], path: str, words: tuple[str, ...]
) -> None:
    document = {name: part for name, part in {**TWO, **changes}.items() if part is not None}
    found = faults_of(client.post("/v1/collections", json=document))
    assert list(found) == [path]
    for word in words:
        assert word in found[path], found


def test_a_fault_that_only_some_sets_have_names_them(client: TestClient) -> None:
    found = client.post("/v1/collections?dry_run=true", json=TWO).json()["studies"]
    # A row of an image is 8 features, and a pixel is one.
    rows, pixels = (one["study"]["parameter_range"]["low"] for one in found)
    assert pixels < rows
    limited = {**TWO, "limits": {"parameters": rows - 1}}
    faults = faults_of(client.post("/v1/collections", json=limited))
    assert list(faults) == ["limits.parameters"]
    assert faults["limits.parameters"].startswith("digits: no candidate")


def test_a_study_of_several_tasks_is_told_where_it_belongs(client: TestClient) -> None:
    for changes, path in (
        ({"tasks": TWO["tasks"]}, "tasks"),
        ({"task": {"kind": "ucr", "name": ["Beef", "Coffee"]}}, "task.name"),
        ({"task": {"kind": "digits"}, "collection_budget": {"trials": 3}}, "collection_budget"),
    ):
        found = faults_of(client.post("/v1/studies", json={**SMALL_SPEC, **changes}))
        assert list(found) == [path]
        assert "/v1/collections" in found[path]


def test_the_same_key_makes_one_collection(client: TestClient) -> None:
    headers = {"Idempotency-Key": "once"}
    first = client.post("/v1/collections", json=TWO, headers=headers)
    with nothing_stored(client):
        again = client.post("/v1/collections", json=TWO, headers=headers)
        assert again.status_code == 202
        assert again.json()["id"] == first.json()["id"]
        other = client.post("/v1/collections", json={**TWO, "seed": 9}, headers=headers)
        assert "Idempotency-Key" in faults_of(other)


def test_all_studies_are_steered_and_deleted_together(client: TestClient, site: Site) -> None:
    collection = client.post("/v1/collections", json=TWO).json()
    links = collection["links"]
    assert client.post(links["pause"]).json()["states"] == {"paused": 2}
    assert client.post(links["pause"]).json()["state"] == "paused"
    assert client.post(links["resume"]).json()["states"] == {"queued": 2}
    refused = client.delete(links["collection"])
    assert refused.status_code == 409
    assert "cancel it first" in refused.json()["detail"]
    client.post(links["cancel"])
    for member in collection["studies"]:
        with site.database.read() as session:
            study = Studies(session).get(member["study"])
        assert study.ending == "cancelled by the local user"
        site.finish(study, StudyState.CANCELLED)
    assert client.get(links["collection"]).json()["state"] == "cancelled"
    assert client.delete(links["collection"]).status_code == 204
    assert client.get(links["collection"]).status_code == 404
    for member in collection["studies"]:
        assert client.get(member["links"]["study"]).status_code == 404


def test_a_study_that_is_deleted_leaves_its_collection(client: TestClient, site: Site) -> None:
    collection = filled(client, site)
    assert client.delete(collection["studies"][0]["links"]["study"]).status_code == 204
    left = client.get(collection["links"]["collection"]).json()
    assert [one["row"] for one in left["studies"]] == ["digits 2"]
    assert len(client.get(collection["links"]["results"]).json()["sets"]) == 1


def test_results_have_the_best_trial_and_the_front_of_each_set(
    client: TestClient, site: Site
) -> None:
    collection = filled(client, site)
    assert collection["totals"]["complete"] == 6
    results = client.get(collection["links"]["results"]).json()
    assert results["state"] == "finished"
    first, second = results["sets"]
    assert (first["row"], first["metric"], first["direction"]) == ("digits", "accuracy", "maximize")
    assert first["best"]["kind"] == "rnn dense"
    assert (first["best"]["trial"], first["best"]["test_quality"]) == (0, 0.5)
    assert second["best"]["quality"] == pytest.approx(0.8)


def test_results_come_as_csv_and_markdown(client: TestClient, site: Site) -> None:
    links = filled(client, site)["links"]
    table = client.get(f"{links['results']}?format=csv")
    assert table.headers["content-type"].startswith("text/csv")
    head, first, second = table.text.splitlines()
    assert head.startswith("row,study,state,metric")
    assert first.startswith("digits,")
    assert ",rnn,dense,0.9,0.5," in first
    assert second.startswith("digits 2,")
    text = client.get(f"{links['results']}?format=markdown")
    assert text.headers["content-type"].startswith("text/markdown")
    assert "| digits | finished | rnn dense | 0 | accuracy | 90.00 % | 50.00 % |" in text.text
    assert "| rnn dense / rnn low\\_rank | 2 | 0 | 0 |" in text.text
    assert client.get(f"{links['results']}?format=xml").status_code == 422


def test_ranks_are_of_the_best_trial_of_each_kind(client: TestClient, site: Site) -> None:
    ranks = client.get(filled(client, site)["links"]["ranks"]).json()
    assert ranks["kinds"] == ["rnn dense", "rnn low_rank"]
    assert ranks["sets"] == ["digits", "digits 2"]
    assert ranks["left_out"] == []
    best, other = ranks["ranked"]
    assert (best["kind"], best["mean_rank"]) == ("rnn dense", 1.0)
    assert (other["kind"], other["mean_rank"]) == ("rnn low_rank", 2.0)
    assert [cell["test_quality"] for cell in other["cells"]] == [0.75, 0.75]
    assert best["on_front"]
    # Of two data sets no difference is sure.
    assert ranks["friedman_p"] > 0.05
    assert [(pair["wins"], pair["ties"], pair["losses"]) for pair in ranks["pairs"]] == [(2, 0, 0)]
    assert ranks["pairs"][0]["p"] == 0.5
    assert ranks["critical_difference"] == pytest.approx(1.96 * (2 * 3 / (6 * 2)) ** 0.5)


def test_a_set_that_lacks_a_kind_is_left_out_for_all(client: TestClient, site: Site) -> None:
    document = {**TWO, "tasks": [*TWO["tasks"], {"kind": "addition", "steps": 10}]}
    collection = client.post("/v1/collections", json=document).json()
    for index, member in enumerate(collection["studies"]):
        with site.database.read() as session:
            study = Studies(session).get(member["study"])
        site.trial(study, 0, parametrization="dense", quality=0.5)
        if index != 1:
            site.trial(study, 1, parametrization="low_rank", quality=0.4)
    ranks = client.get(collection["links"]["ranks"]).json()
    assert ranks["sets"] == ["digits", "addition"]
    assert [(one["row"], one["lacks"]) for one in ranks["left_out"]] == [
        ("digits 2", ["rnn low_rank"])
    ]
    # Accuracies and errors do not compare.
    assert ranks["pair_test"] == "signs"
    assert "p (sign test, Holm)" in client.get(collection["links"]["page"]).text
    # An error is better where it is smaller.
    assert [one["mean_rank"] for one in ranks["ranked"]] == [1.5, 1.5]
    one = client.get(collection["links"]["ranks"], params={"kinds": "rnn dense"}).json()
    assert (one["kinds"], one["ranked"], one["friedman_p"]) == (["rnn dense"], [], None)
    wrong = faults_of(client.get(collection["links"]["ranks"], params={"kinds": "rnn dens"}))
    assert "did you mean rnn dense" in wrong["kinds.0"]


def test_a_budget_of_whole_trainings_is_shown_as_one(client: TestClient, site: Site) -> None:
    document = {**TWO, "sampler": {"kind": "freeze_thaw"}, "collection_budget": {"trials": 6}}
    document["budget"] = {"trials": 4, "epochs": 3}
    collection = client.post("/v1/collections", json=document).json()
    for member in collection["studies"]:
        with site.database.read() as session:
            study = Studies(session).get(member["study"])
        for number in range(5):
            site.trial(study, number, state=TrialState.STOPPED)
            site.epoch(study, number, 1)
    found = client.get(collection["links"]["collection"]).json()["totals"]
    assert (found["trials"], found["epochs_trained"], found["trainings"]) == (10, 10, 3)
    page = client.get(collection["links"]["page"]).text
    assert "<dt>Trials ended</dt><dd>10</dd>" in page
    assert "<dt>Whole trainings</dt><dd>3 of 6</dd>" in page


def test_what_stopped_or_failed_stands_for_its_kind_where_nothing_is_complete(
    client: TestClient, site: Site
) -> None:
    collection = client.post("/v1/collections", json=TWO).json()
    for index, member in enumerate(collection["studies"]):
        with site.database.read() as session:
            study = Studies(session).get(member["study"])
        site.trial(study, 0, parametrization="dense", quality=0.5)
        site.trial(study, 2, parametrization="dense", quality=0.9, state=TrialState.STOPPED)
        state = TrialState.FAILED if index else TrialState.STOPPED
        site.trial(
            study, 1, parametrization="low_rank", quality=None if index else 0.8, state=state
        )
    ranks = client.get(collection["links"]["ranks"]).json()
    cells = {one["kind"]: one["cells"] for one in ranks["ranked"]}
    assert [cell["trial"] for cell in cells["rnn dense"]] == [0, 0]
    assert [cell["outcome"] for cell in cells["rnn low_rank"]] == ["stopped", "failed"]
    # 0.8 is better than 0.5, and what failed is last.
    assert [one["mean_rank"] for one in ranks["ranked"]] == [1.5, 1.5]


def test_another_tenant_finds_no_collection_and_quotas_hold_for_all_of_it(tmp_path: Path) -> None:
    site = Site(tmp_path / "data")
    ours, theirs = (
        {"Authorization": f"Bearer {create_key(database, name='a key', scopes=('write',)).text}"}
        for database in map(site.database.of, ("ours", "theirs"))
    )
    with site.database.write() as session:
        Quotas(session).override("theirs", {"studies": 1})
    with TestClient(create_app(site.settings), base_url="http://localhost:8080") as client:
        collection = client.post("/v1/collections", json=TWO, headers=ours).json()
        for link in ("collection", "results", "ranks"):
            assert client.get(collection["links"][link], headers=ours).status_code == 200
            assert client.get(collection["links"][link], headers=theirs).status_code == 404
        assert client.post(collection["links"]["cancel"], headers=theirs).status_code == 404
        full = client.post("/v1/collections", json=TWO, headers=theirs)
        assert (full.status_code, full.json()["quota"]) == (409, "studies"), full.text
        for path in ("/v1/collections", "/v1/studies"):
            assert client.get(path, headers=theirs).json()["items"] == []
    with site.database.of("theirs").read() as session:
        assert Collections(session).members([collection["id"]]) == {collection["id"]: []}
    site.close()


def test_pages_show_collections(client: TestClient, site: Site) -> None:
    assert_strict(client.get("/collections"))
    collection = filled(client, site)
    listed = client.get("/collections")
    assert_strict(listed)
    assert collection["links"]["page"] in listed.text
    page = client.get(collection["links"]["page"])
    assert_strict(page)
    for words in ("two layouts", "rnn low_rank", "Friedman p", "digits 2"):
        assert words in page.text
    origin = {"Origin": "http://localhost:8080"}
    moved = client.post(
        f"{collection['links']['page']}/pause", headers=origin, follow_redirects=False
    )
    assert (moved.status_code, moved.headers["location"]) == (303, collection["links"]["page"])
