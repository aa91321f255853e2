import csv
import io
from typing import Any

import pytest
from starlette.testclient import TestClient

from search.documents.objectives import USUAL_OBJECTIVES
from search.optuna_tables import study_name
from storage.records import StudyState, TrialState
from storage.repositories.studies import Studies
from tests.service.site import SMALL_SPEC, Site

PROBLEM = "application/problem+json"


def paths_of(answer: Any) -> list[str]:
    assert answer.headers["content-type"] == PROBLEM
    return [fault["path"] for fault in answer.json()["errors"]]


def test_a_submitted_study_is_queued_and_can_be_read_back(client: TestClient) -> None:
    answer = client.post("/v1/studies", json=SMALL_SPEC)
    assert answer.status_code == 202
    study = answer.json()
    assert study["state"] == "queued"
    assert study["spec"]["space"] == {
        "hidden_size": {"low": 8, "high": 16, "log": False, "step": 8},
        "rnn.activation": "tanh",
    }
    assert study["progress"]["trials"]["total"] == 4
    assert answer.headers["location"] == study["links"]["study"]
    assert client.get(study["links"]["study"]).json() == study
    assert study["created_at"].endswith("Z")


def test_only_the_task_is_required(client: TestClient) -> None:
    study = client.post("/v1/studies", json={"task": {"kind": "digits"}}).json()
    assert study["spec"]["architectures"] == ["rnn", "gru"]
    assert study["spec"]["budget"]["trials"] == 30
    assert study["spec"]["objectives"] == list(USUAL_OBJECTIVES)


def test_a_dry_run_describes_the_space_and_stores_nothing(client: TestClient) -> None:
    answer = client.post("/v1/studies?dry_run=true", json=SMALL_SPEC)
    assert answer.status_code == 200
    assert [c["parametrization"] for c in answer.json()["candidates"]] == ["dense", "low_rank"]
    assert answer.json()["parameter_range"]["low"] < answer.json()["parameter_range"]["high"]
    assert client.get("/v1/studies").json() == {"items": [], "next_cursor": None}


@pytest.mark.parametrize(
    ("changes", "path", "words"),
    [
        ({"naem": "x"}, "naem", ("unknown key", "did you mean 'name'?", "/docs")),
        ({"task": {"kind": "digits", "layuot": "rows"}}, "task.layuot", ("unknown key", "layout")),
        ({"task": {"kind": "digitz"}}, "task.kind", ("digitz", "did you mean 'digits'?", "mnist")),
        ({"task": {}}, "task.kind", ("required",)),
        (
            {"task": {"kind": "digits", "layout": "columns"}},
            "task.layout",
            ("columns", "pixels"),
        ),
        (
            {"task": {"kind": "digits", "layout": "pixel"}},
            "task.layout",
            ("did you mean 'pixels'?",),
        ),
        (
            {"space": {"hiden_size": 8}},
            "space.hiden_size",
            ("did you mean 'hidden_size'?", "allowed are"),
        ),
        ({"budget": {"trials": 0}}, "budget.trials", ("greater than or equal to 1", "not 0")),
        (
            {"budget": {"trails": 3}},
            "budget.trails",
            ("unknown key", "did you mean 'trials'?", "epochs"),
        ),
        ({"architectures": ["rnn", "elman"]}, "architectures.1", ("elman", "rnn", "gru")),
        ({"objectives": []}, "objectives", ("at least 1",)),
        ({"space": {"hidden_size": {"low": 9, "high": 8}}}, "space.hidden_size", ("9", "8")),
        (
            {"space": {"hidden_size": {"low": 8, "high": 16, "stop": 1}}},
            "space.hidden_size.stop",
            ("unknown key", "low", "high", "step"),
        ),
        ({"space": {"hidden_size": {"low": 8}}}, "space.hidden_size.high", ("required",)),
        ({"space": {"low_rank.d": 4000}}, "space.low_rank.d", ("4000", "allowed is 1 to 128")),
        ({"space": {"dropout": 0.5}}, "space.dropout", ("did you mean 'layer_dropout'?",)),
        ({"limits": {"parameters": 3}}, "limits.parameters", ("3", "fewer")),
    ],
)
def test_a_wrong_spec_is_refused_with_its_path_and_what_is_allowed(
    client: TestClient, changes: dict[str, Any], path: str, words: tuple[str, ...]
) -> None:
    answer = client.post("/v1/studies", json={**SMALL_SPEC, **changes})
    assert answer.status_code == 422, answer.text
    assert paths_of(answer) == [path]
    said = answer.json()["errors"][0]["message"]
    for word in words:
        assert word in said, said
        assert word in answer.json()["detail"]
    assert client.get("/v1/studies").json()["items"] == []


def test_several_faults_are_told_at_once(client: TestClient) -> None:
    answer = client.post("/v1/studies", json={"budget": {"epochs": -1}, "seed": "x"})
    assert sorted(paths_of(answer)) == ["budget.epochs", "seed", "task"]


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b'"x"', b"\xff\xfe", b"[" * 100_000])
def test_a_body_that_is_no_json_object_is_a_problem_of_the_client(
    client: TestClient, body: bytes
) -> None:
    answer = client.post("/v1/studies", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    assert answer.headers["content-type"] == PROBLEM


def test_a_repeated_key_with_the_same_spec_gives_the_same_study(client: TestClient) -> None:
    headers = {"Idempotency-Key": "once"}
    first = client.post("/v1/studies", json=SMALL_SPEC, headers=headers).json()
    again = client.post("/v1/studies", json=SMALL_SPEC, headers=headers)
    assert again.status_code == 202
    assert again.json()["id"] == first["id"]
    other = client.post("/v1/studies", json={**SMALL_SPEC, "seed": 4}, headers=headers)
    assert other.status_code == 422
    assert paths_of(other) == ["Idempotency-Key"]
    assert len(client.get("/v1/studies").json()["items"]) == 1


def test_paging_visits_every_study_once_newest_first(client: TestClient, site: Site) -> None:
    ids = [site.study(name=f"study {i}").id for i in range(7)]
    seen: list[str] = []
    cursor: str | None = None
    for _ in range(10):
        query = {"limit": "3"} | ({} if cursor is None else {"cursor": cursor})
        page = client.get("/v1/studies", params=query).json()
        seen += [study["id"] for study in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == ids[::-1]


def test_studies_can_be_listed_by_state(client: TestClient, site: Site) -> None:
    running, _queued = site.study(), site.study()
    site.run(running)
    found = client.get("/v1/studies?state=running").json()["items"]
    assert [study["id"] for study in found] == [running.id]
    assert paths_of(client.get("/v1/studies?state=asleep")) == ["state"]


@pytest.mark.parametrize(
    ("query", "path"),
    [("limit=0", "limit"), ("limit=201", "limit"), ("limit=x", "limit"), ("cursor=@@", "cursor")],
)
def test_a_wrong_page_is_refused_by_the_parameters_name(
    client: TestClient, query: str, path: str
) -> None:
    answer = client.get(f"/v1/studies?{query}")
    assert answer.status_code == 422
    assert paths_of(answer) == [path]


def test_cancelling_twice_is_harmless(client: TestClient, site: Site) -> None:
    study = site.study()
    first = client.post(f"/v1/studies/{study.id}/cancel")
    again = client.post(f"/v1/studies/{study.id}/cancel")
    assert (first.status_code, again.status_code) == (200, 200)
    assert first.json()["state_reason"] == "cancelled by the local user"
    site.finish(study, StudyState.CANCELLED)
    assert client.post(f"/v1/studies/{study.id}/cancel").json()["state"] == "cancelled"


def test_the_front_is_what_brute_force_finds_among_the_trials(
    client: TestClient, site: Site
) -> None:
    study = site.study()
    values = [
        (0.9, 500, 100.0),
        (0.8, 400, 100.0),
        (0.8, 400, 100.0),
        (0.7, 450, 90.0),
        (0.6, 600, 400.0),
        (0.95, 900, 50.0),
    ]
    for number, (quality, parameters, throughput) in enumerate(values):
        site.trial(
            study, number, quality=quality, parameters=parameters, throughput=throughput, ratio=0.7
        )
    site.trial(study, 6, state=TrialState.STOPPED, quality=0.99, parameters=1, throughput=9e9)
    trials = client.get(f"/v1/studies/{study.id}/trials").json()["items"]

    def beaten(a: dict[str, Any], b: dict[str, Any], names: tuple[str, ...]) -> bool:
        signs = {"quality": 1, "parameters": -1, "throughput": 1}
        pairs = [(signs[n] * a["values"][n], signs[n] * b["values"][n]) for n in names]
        return all(y >= x for x, y in pairs) and any(y > x for x, y in pairs)

    for names in (("quality", "parameters", "throughput"), ("quality", "parameters"), ("quality",)):
        complete = [trial for trial in trials if trial["outcome"] == "complete"]
        expected = [a["number"] for a in complete if not any(beaten(a, b, names) for b in complete)]
        front = client.get(
            f"/v1/studies/{study.id}/front", params={"objectives": ",".join(names)}
        ).json()
        assert [point["trial"] for point in front["points"]] == expected
        assert [info["name"] for info in front["objectives"]] == list(names)
    point = front["points"][0]
    assert point["values"] == {
        "quality": 0.95,
        "parameters": 900,
        "throughput": 50.0,
        "bytes": None,
        "latency": None,
    }
    assert point["throughput_ratio"] == 0.7
    assert front["objectives"][0]["metric"] == "accuracy"
    assert client.get(point["links"]["checkpoint"]).status_code == 200
    assert client.get(point["links"]["report"]).status_code == 200
    assert point["links"]["onnx"] is None


def test_the_front_as_csv_has_the_same_points(client: TestClient, site: Site) -> None:
    study = site.study()
    site.trial(study, 0, quality=0.9, throughput=10.0)
    site.trial(study, 1, quality=0.95, throughput=5.0)
    path = f"/v1/studies/{study.id}/front"
    answer = client.get(f"{path}?format=csv")
    assert answer.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    points = client.get(path).json()["points"]
    assert [int(row["trial"]) for row in rows] == [point["trial"] for point in points]
    assert [float(row["quality"]) for row in rows] == [p["values"]["quality"] for p in points]
    assert rows[0]["rnn.hidden_size"] == str(points[0]["hyperparameters"]["rnn.hidden_size"])


@pytest.mark.parametrize("objectives", ["", "speed", "quality,quality", "quality,", "Quality"])
def test_unknown_objectives_of_a_front_are_refused(
    client: TestClient, site: Site, objectives: str
) -> None:
    study = site.study()
    answer = client.get(f"/v1/studies/{study.id}/front", params={"objectives": objectives})
    assert answer.status_code == 422
    assert paths_of(answer) == ["objectives"]


def test_a_change_of_nothing_is_told_what_a_change_names(client: TestClient, site: Site) -> None:
    study = site.study()
    answer = client.patch(f"/v1/studies/{study.id}", json={})
    assert answer.status_code == 422
    assert "budget, priority, name, tags, notes" in answer.json()["detail"]
    assert "JSON object" not in answer.text
    nothing = client.patch(f"/v1/studies/{study.id}", json=[])
    assert "JSON object" in nothing.json()["detail"]


@pytest.mark.parametrize("value", [True, False, "1", 1.5])
@pytest.mark.parametrize(
    "path",
    [
        "priority",
        "seed",
        "confirm",
        "budget.trials",
        "budget.epochs",
        "budget.total_epochs",
        "limits.parameters",
        "throughput.batch_size",
        "retention.top",
        "sampler.startup_trials",
        "space.hidden_size.low",
    ],
)
def test_an_integer_is_made_of_nothing_else(client: TestClient, path: str, value: object) -> None:
    spec: dict[str, Any] = {**SMALL_SPEC, "sampler": {"kind": "tpe"}}
    *parts, name = path.split(".")
    node = spec
    for part in parts:
        node[part] = dict(node.get(part, {}))
        node = node[part]
    node[name] = value
    answer = client.post("/v1/studies?dry_run=true", json=spec)
    assert answer.status_code == 422
    [fault] = answer.json()["errors"]
    assert fault["path"].startswith(".".join(parts) or path)
    if path in ("priority", "budget.trials"):
        study = client.post("/v1/studies", json=SMALL_SPEC).json()["id"]
        change = {name: value} if not parts else {parts[0]: {name: value}}
        assert client.patch(f"/v1/studies/{study}", json=change).status_code == 422


def test_a_study_is_renamed_tagged_and_found_so(client: TestClient, site: Site) -> None:
    study, other = site.study(name="before"), site.study(name="other")
    path = f"/v1/studies/{study.id}"
    labels = {"name": "after", "tags": [" gpu ", "rows"], "notes": "one\ntwo"}
    changed = client.patch(path, json=labels).json()
    assert changed == client.get(path).json()
    assert (changed["name"], changed["tags"]) == ("after", ["gpu", "rows"])
    assert (changed["notes"], changed["spec"]["name"]) == ("one\ntwo", "before")
    assert client.patch(path, json={"tags": []}).json()["notes"] == "one\ntwo"
    client.patch(path, json={"tags": ["gpu"], "priority": 3})
    for asked, found in (
        ({"prefix": study.id[:6]}, study),
        ({"prefix": other.id}, other),
        ({"name": "after"}, study),
        ({"tag": "gpu"}, study),
        ({"text": "AFTER"}, study),
    ):
        items = client.get("/v1/studies", params=asked).json()["items"]
        assert [one["id"] for one in items] == [found.id], asked
    for nothing in ({"name": "before"}, {"tag": "rows"}, {"prefix": "x"}):
        assert client.get("/v1/studies", params=nothing).json()["items"] == []
    # A copy in Optuna's tables is found again under the name that it was made with.
    with site.database.read() as session:
        assert study_name(Studies(session).get(study.id)) == study_name(study)


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"name": ""}, "name"),
        ({"tags": ["a,b"]}, "tags.0"),
        ({"tags": ["  "]}, "tags.0"),
        ({"tags": ["a", "b", " a"]}, "tags"),
        ({"tags": [str(number) for number in range(21)]}, "tags"),
        ({"tags": "a"}, "tags"),
        ({"notes": "x" * 10_001}, "notes"),
    ],
)
def test_labels_that_are_refused_are_named(
    client: TestClient, site: Site, change: dict[str, Any], path: str
) -> None:
    study = site.study()
    answer = client.patch(f"/v1/studies/{study.id}", json=change)
    assert answer.status_code == 422
    assert paths_of(answer) == [path]


def test_a_document_that_is_wrong_in_thousands_of_places_is_told_of_some(
    client: TestClient,
) -> None:
    spec = {**SMALL_SPEC, **{f"unknown_{number}": 1 for number in range(4000)}}
    answer = client.post("/v1/studies", json=spec)
    assert answer.status_code == 422
    assert len(answer.content) < 100_000
    assert len(answer.json()["errors"]) == 51
    assert "more places" in answer.json()["errors"][-1]["message"]
