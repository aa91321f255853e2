"""The form that a study is made with, as a browser without JavaScript sends it."""

import json
import re
from html import unescape
from typing import Any
from urllib.parse import urlencode

import pytest
from starlette.testclient import TestClient
from torch import nn

from search.errors import Fault
from search.studies.spec import NOT_OF_A_NETWORK, StudySpec
from search.tasks import TASKS
from service.rendering.form.form_fields import form_fields
from service.rendering.form.goals import GOALS, Asked
from service.rendering.form.range_text import override_of, text_of, usual_text
from service.rendering.form.spec_form import (
    ExtraRefused,
    document_of,
    fields_of_faults,
    usual_values,
    values_of,
)
from storage.records import StudyState, TrialState
from storage.repositories.metrics import Metrics
from storage.repositories.studies import Studies
from tests.service.model_files import plain, saved, upload_model
from tests.service.pages.test_pages import Elements, assert_strict
from tests.service.site import SMALL_SPEC, Site, now
from tests.service.uploading import CSV
from tests.storage.records import metric

OURS = {"Origin": "http://localhost:8080", "Content-Type": "application/x-www-form-urlencoded"}

FORM = {
    "form": ["a-token-of-the-form"],
    "name": ["from a form"],
    "task": ["digits"],
    "architectures": ["rnn", "urnn"],
    "parametrizations": ["dense", "low_rank"],
    "objectives": ["quality", "parameters"],
    "budget:trials": ["4"],
    "budget:epochs": ["2"],
    "space:hidden_size": ["8 to 16 by 8"],
    "early_stopping": ["none"],
    "seed": ["3"],
}


def send(client: TestClient, act: str, **changes: list[str]) -> Any:
    body = urlencode({**FORM, **changes, "act": [act]}, doseq=True)
    return client.post("/studies/new", content=body, headers=OURS, follow_redirects=False)


def filled_in(page: str) -> dict[str, list[str]]:
    """What a browser would send of a form that is left as it came."""
    values: dict[str, list[str]] = {}
    select, several = "", False
    for tag, attributes in Elements(page).found:
        name = attributes.get("name") or ""
        if tag == "select":
            select, several = name, "multiple" in attributes
            values[name] = [] if several else [""]
        elif tag == "option" and "selected" in attributes:
            values[select] = [*(values[select] if several else ()), attributes["value"] or ""]
        elif tag == "input" and attributes.get("type") in ("checkbox", "radio"):
            if "checked" in attributes:
                values.setdefault(name, []).append(attributes["value"] or "")
        elif tag == "input":
            values[name] = [attributes.get("value") or ""]
    text = page.split("<textarea")[1].split("</textarea>")[0].rpartition(">")[2]
    return {**values, "extra": [unescape(text)]}


def test_the_form_offers_all_that_a_spec_can_name(client: TestClient) -> None:
    answer = client.get("/studies/new")
    assert_strict(answer)
    page = Elements(answer.text)
    catalog = client.get("/v1/catalog").json()
    for name, part in (
        ("task", "tasks"),
        ("architectures", "architectures"),
        ("parametrizations", "parametrizations"),
    ):
        offered = [field["value"] for field in page.all("input") if field.get("name") == name]
        assert offered == [entry["kind"] for entry in catalog[part]]
    systems = answer.text.split('<select name="presets"')[1].split("</select>")[0]
    offered = [option["value"] for option in Elements(systems).all("option")]
    assert offered == [preset["name"] for preset in catalog["presets"]]
    for part in (StudySpec.model_fields["throughput"], StudySpec.model_fields["export"]):
        for name in type(part.default).model_fields:
            assert any((found.get("name") or "").endswith(f":{name}") for _, found in page.found)


def test_every_field_has_a_label(client: TestClient) -> None:
    page = Elements(client.get("/studies/new").text)
    labelled = {label.get("for") for label in page.all("label")}
    fields = [*page.all("input"), *page.all("select"), *page.all("textarea")]
    ids = [field.get("id") for field in fields if field.get("type") != "hidden"]
    assert set(ids) <= labelled
    assert len(set(ids)) == len(ids)
    described = [word for field in fields for word in (field.get("aria-describedby") or "").split()]
    known = {attributes.get("id") for _, attributes in page.found}
    assert set(described) <= known


def test_a_form_left_as_it_is_is_the_default_study(client: TestClient) -> None:
    values = filled_in(client.get("/studies/new").text)
    document = document_of(form_fields(), values)
    assert StudySpec.model_validate(document) == StudySpec.model_validate(
        {"task": {"kind": "digits"}}
    )


@pytest.mark.parametrize("task", TASKS, ids=lambda task: str(task.model_fields["kind"].default))
def test_every_task_comes_through_the_form(task: Any) -> None:
    form = form_fields()
    document = StudySpec(task=task.example()).model_dump(mode="json", exclude={"task": {"facts"}})
    again = document_of(form, values_of(form, document))
    assert StudySpec.model_validate(again).task == StudySpec.model_validate(document).task


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"space": {"hidden_size": 16, "rnn.leak": 0.2, "low_rank.d": {"low": 1, "high": 4}}},
        {"space": {"training.learning_rate": {"low": 0.001, "high": 0.01, "log": True}}},
        {"space": {"training.learning_rate": {"low": 0.001, "high": 0.01}}},
        {"space": {"rnn.activation": {"options": ["relu", "tanh"]}}},
        {"early_stopping": {"kind": "pareto_gain", "threshold": {"kind": "rate", "share": 0.5}}},
        {"early_stopping": {"kind": "mo_asha", "eta": 4}, "sampler": {"kind": "nsga2"}},
        {"confirm": 2, "throughput": {"batch_size": 1}, "retention": {"keep": "front"}},
        {"objectives": ["parameters", "throughput"], "sampler": {"kind": "tpe"}},
        {
            "objectives": ["quality", "bytes", "latency"],
            "throughput": {"runtime": "c", "batch_size": 1},
            "export": {"file": "c"},
            "limits": {"bytes": 50_000, "state_bytes": 9000, "latency_seconds": 0.5},
        },
        {
            "objectives": {
                "parameters": {"at_most": 900},
                "quality": {"at_least": 0.75},
                "throughput": {},
            },
        },
        {"presets": ["rnn-32"], "limits": {"parameters": 9000, "min_throughput_ratio": 0.5}},
        {"budget": {"trials": 7, "device_hours": 0.25, "wall_seconds": 1e-3}, "seed": 4294967295},
    ],
)
def test_a_study_that_is_begun_from_another_is_the_same(
    client: TestClient, site: Site, changes: dict[str, Any]
) -> None:
    study = site.study(**changes)
    page = client.get("/studies/new", params={"from": study.id}).text
    document = document_of(form_fields(), filled_in(page))
    assert StudySpec.model_validate(document) == StudySpec.model_validate({**SMALL_SPEC, **changes})


def test_a_bound_is_filled_in_beside_its_objective_and_so_are_its_faults(
    client: TestClient,
) -> None:
    bounds = {"objectives:quality:at_least": ["0.9"], "objectives:latency:at_most": ["1"]}
    # What is not ticked is no objective, whatever stands beside it.
    assert document_of(form_fields(), {**FORM, **bounds})["objectives"] == {
        "quality": {"at_least": 0.9},
        "parameters": {},
    }
    assert send(client, "check", **bounds).status_code == 200
    refused = send(client, "check", **{"objectives:quality:at_least": ["0.05"]})
    assert refused.status_code == 422
    (fault,) = [
        attributes
        for _, attributes in Elements(refused.text).found
        if attributes.get("id") == "objectives-quality-at_least-fault"
    ]
    assert fault["class"] == "fault"


def test_a_data_set_can_be_named_by_the_page_that_leads_here(client: TestClient) -> None:
    values = filled_in(client.get("/studies/new", params={"dataset": "d1"}).text)
    assert document_of(form_fields(), values)["task"] == {"kind": "dataset", "id": "d1"}


def test_a_study_that_compresses_is_begun_from_the_page_of_its_model(
    client: TestClient, site: Site
) -> None:
    model = upload_model(client, saved(plain(nn.GRU, outputs=10)), "my gru").json()
    (page,) = [
        link["href"]
        for link in Elements(client.get(model["links"]["page"]).text).all("a")
        if "model=" in (link.get("href") or "")
    ]
    assert page is not None
    answer = client.get(page)
    assert_strict(answer)
    values = {**filled_in(answer.text), "budget:trials": ["3"], "compress:distillation": ["true"]}
    document = document_of(form_fields(), values)
    assert document["task"] == {"kind": "digits", "layout": "rows"}
    assert document["compress"] == {"model": model["id"], "distillation": True}
    # Whatever is ticked of architectures: it is the model's.
    values["architectures"] = ["rnn", "mlp"]
    checked = send(client, "check", **values)
    assert checked.status_code == 200, checked.text
    told = Elements(checked.text)
    assert any("This can be run" in text for text in told.text)
    assert '<th scope="col">Candidates</th><th scope="col">gru</th></tr>' in checked.text
    assert any("compress.temperature" in text for text in told.text)
    begun = send(client, "start", **values)
    assert begun.status_code == 303, begun.text
    study = client.get(f"/v1{begun.headers['Location']}").json()
    assert study["spec"]["compress"]["model"] == model["id"]
    assert study["spec"]["architectures"] == ["gru"]
    shown = client.get(begun.headers["Location"]).text
    assert f'href="{model["links"]["page"]}"' in shown
    again = client.get("/studies/new", params={"from": study["id"]}).text
    copied = StudySpec.model_validate(document_of(form_fields(), filled_in(again)))
    assert copied == StudySpec.model_validate(document_of(form_fields(), values))
    with site.database.write() as session:
        Studies(session).set_state(study["id"], StudyState.CANCELLED, at=now())
    assert client.delete(f"/v1/models/{model['id']}").status_code == 204
    shown = client.get(begun.headers["Location"]).text
    assert "a model that has been deleted since" in shown
    assert model["links"]["page"] not in shown


def test_a_model_that_does_not_fit_is_refused_beside_its_field(client: TestClient) -> None:
    model = upload_model(client, saved(plain(nn.GRU, outputs=3))).json()
    for given, words in ((model["id"], "outputs 3"), ("no-such-model", "no-such-model")):
        answer = send(client, "start", **{"compress:model": [given]})
        assert answer.status_code == 422
        assert_strict(answer)
        (field,) = [
            one
            for one in Elements(answer.text).all("select")
            if one.get("name") == "compress:model"
        ]
        assert field["aria-invalid"] == "true"
        assert words in answer.text
    assert client.get("/studies/new?model=none").status_code == 404
    assert client.get("/v1/studies").json()["items"] == []


def test_a_check_tells_what_would_be_searched_and_stores_nothing(client: TestClient) -> None:
    answer = send(client, "check")
    assert answer.status_code == 200
    assert_strict(answer)
    text = " ".join(Elements(answer.text).text)
    assert "This can be run" in text
    # The low-rank form is not defined on the complex matrices of a uRNN.
    assert "3 candidates" in text
    assert "not defined" in text
    assert "8 to 16, by 8" in text
    assert client.get("/v1/studies").json()["items"] == []
    assert filled_in(answer.text)["space:hidden_size"] == ["8 to 16 by 8"]


def test_a_start_makes_a_study_and_leads_to_it(client: TestClient) -> None:
    answer = send(client, "start")
    assert answer.status_code == 303
    study = client.get("/v1" + answer.headers["location"]).json()
    assert study["state"] == StudyState.QUEUED
    assert study["name"] == "from a form"
    assert study["spec"]["space"] == {
        "hidden_size": {"low": 8, "high": 16, "step": 8, "log": False},
        "rnn.activation": "tanh",
    }
    assert study["spec"]["early_stopping"] is None


def test_a_form_that_is_sent_twice_is_one_study_and_a_changed_one_another(
    client: TestClient,
) -> None:
    first, second = (send(client, "start").headers["location"] for _ in range(2))
    assert first == second
    assert send(client, "start", seed=["4"]).headers["location"] != first
    assert send(client, "start", form=["another-token"]).headers["location"] != first


def test_faults_stand_beside_their_fields(client: TestClient) -> None:
    answer = send(
        client,
        "start",
        **{
            "name": ['<script>"x'],
            "space:hidden_size": ["90 to 16"],
            "budget:trials": ["many"],
            "objectives": [],
            "early_stopping": ["pareto_gain"],
            "early_stopping:pareto_gain:min_epochs": ["5"],
            "extra": ['{"confirm": -1, "colour": 2}'],
        },
    )
    assert answer.status_code == 422
    assert_strict(answer)
    page = Elements(answer.text)
    wrong = {
        attributes["id"] for tag, attributes in page.found if attributes.get("class") == "fault"
    }
    assert wrong >= {"space-hidden_size-fault", "budget-trials-fault", "objectives-fault"}
    summary = answer.text.split('role="alert"')[1].split("</ul>")[0]
    for said in ("confirm", "colour", "unknown key", "many", "90"):
        assert said in summary, said
    linked = re.findall(r'href="#([^"]+)"', summary)
    ids = {attributes.get("id") for _, attributes in page.found}
    assert linked
    assert set(linked) <= ids
    assert client.get("/v1/studies").json()["items"] == []
    assert filled_in(answer.text)["name"] == ['<script>"x']


def test_what_runs_and_what_is_taken_away_have_their_faults_beside_them(
    client: TestClient,
) -> None:
    refused = (
        ({"throughput:runtime": ["c"], "throughput:threads": ["2"]}, "throughput-threads-fault"),
        ({"export:file": ["c"], "export:form": ["loop"]}, "export-form-fault"),
    )
    for values, place in refused:
        answer = send(client, "check", **values)
        assert answer.status_code == 422
        page = Elements(answer.text)
        wrong = {found["id"] for _, found in page.found if found.get("class") == "fault"}
        assert wrong == {place}


@pytest.mark.parametrize("text", ["{", "[]", "7", "[" * 50_000])
def test_what_is_no_json_object_is_refused_beside_its_field(client: TestClient, text: str) -> None:
    answer = send(client, "check", extra=[text])
    assert answer.status_code == 422
    assert 'id="extra-fault"' in answer.text


def test_json_is_put_on_top_of_what_is_chosen() -> None:
    extra = {"budget": {"trials": 9}, "space": {"rnn.leak": 0.2}, "confirm": 1}
    document = document_of(form_fields(), {**FORM, "extra": [json.dumps(extra)]})
    assert document["budget"] == {"trials": 9, "epochs": 2}
    assert document["space"]["rnn.leak"] == 0.2
    assert document["space"]["hidden_size"] == {"low": 8, "high": 16, "step": 8}
    with pytest.raises(ExtraRefused):
        document_of(form_fields(), {**FORM, "extra": ["nothing"]})


def test_what_belongs_to_no_chosen_candidate_is_left_out() -> None:
    values = {**FORM, "space:householder.m": ["4"], "task:mnist:layout": ["pixels"]}
    document = document_of(form_fields(), values)
    assert list(document["space"]) == ["hidden_size"]
    assert document["task"] == {"kind": "digits"}


def test_a_fault_of_no_field_is_told_with_its_path() -> None:
    beside, others = fields_of_faults(
        form_fields(), usual_values(form_fields()), [Fault("warm_start.0", "no such study")]
    )
    assert beside == {}
    assert others == [Fault("warm_start.0", "no such study")]


def test_a_form_of_another_page_is_refused(client: TestClient) -> None:
    stranger = {**OURS, "Origin": "http://elsewhere"}
    body = urlencode({**FORM, "act": ["start"]}, doseq=True)
    assert client.post("/studies/new", content=body, headers=stranger).status_code == 403
    assert client.get("/v1/studies").json()["items"] == []


@pytest.mark.parametrize("goal", list(GOALS))
def test_every_goal_is_shown_and_passes_the_check(client: TestClient, goal: str) -> None:
    aimed_at = send(client, f"goal:{goal}", **{"goal:parameters": ["9000"]})
    assert aimed_at.status_code == 200
    assert_strict(aimed_at)
    assert GOALS[goal].title in aimed_at.text
    fragment = GOALS[goal].fragment(Asked(is_network=False, parameters=9000))
    shown = aimed_at.text.split('tabindex="0">')[1].split("</pre>")[0]
    assert json.loads(unescape(shown)) == fragment
    values = filled_in(aimed_at.text)
    document = document_of(form_fields(), values)
    for name, part in fragment.items():
        told = document[name]
        if isinstance(part, dict):
            told = {key: value for key, value in told.items() if key in part}
        assert told == part
    # What the goal does not name stays as it was filled in.
    assert document["name"] == "from a form"
    assert document["space"]["hidden_size"] == {"low": 8, "high": 16, "step": 8}
    checked = send(client, "check", **values)
    assert checked.status_code == 200, checked.text
    assert client.get("/v1/studies").json()["items"] == []


def test_a_goal_that_cannot_be_is_refused(client: TestClient) -> None:
    few = send(client, "goal:under", **{"goal:parameters": ["many"]})
    assert few.status_code == 422
    assert "&#39;many&#39; is no whole number" in few.text
    assert 'id="limits-parameters-fault"' in few.text
    assert send(client, "goal:fame").status_code == 422


def test_goals_of_a_network_name_what_a_network_has() -> None:
    for goal in GOALS.values():
        named = goal.fragment(Asked(is_network=True))
        assert not named.keys() & NOT_OF_A_NETWORK.keys()
        assert "parameters" not in named.get("objectives", ())


@pytest.mark.parametrize(
    ("text", "override"),
    [
        ("16", 16),
        ("0.5", 0.5),
        ("8 to 64", {"low": 8, "high": 64, "log": True}),
        ("8..64", {"low": 8, "high": 64, "log": True}),
        ("8 to 64 by 8", {"low": 8, "high": 64, "step": 8}),
        ("1e-4 to 0.1 log", {"low": 1e-4, "high": 0.1, "log": True}),
        ("8 to 64 linear", {"low": 8, "high": 64, "log": False}),
        ("-3 to -1", {"low": -3, "high": -1, "log": True}),
    ],
)
def test_ranges_are_read_as_people_write_them(text: str, override: Any) -> None:
    (hidden,) = [one for one in form_fields().shared if one.name == "hidden_size"]
    assert override_of(text, hidden) == override
    again = text_of(override, hidden)
    assert again is not None
    assert override_of(again, hidden) == override
    assert override_of(usual_text(hidden), hidden) == {"low": 16, "high": 128, "log": True}


@pytest.mark.parametrize("text", ["many", "8 to", "to 8", "8 by 2", "8 to 16 by", "8 to x", "nan"])
def test_what_is_no_range_is_refused_beside_its_field(client: TestClient, text: str) -> None:
    answer = send(client, "check", **{"space:hidden_size": [text]})
    assert answer.status_code == 422
    fault = answer.text.split('id="space-hidden_size-fault">')[1].split("</p>")[0]
    assert "8 to 64 by 8" in fault
    assert text in unescape(fault)


def test_what_differs_from_the_default_is_not_folded_away(client: TestClient) -> None:
    def opened(page: str) -> set[str | None]:
        return {part.get("id") for part in Elements(page).all("details") if "open" in part}

    assert opened(client.get("/studies/new").text) == set()
    assert opened(send(client, "check", **{"throughput:batch_size": ["1"]}).text) == {
        "advanced",
        "measuring",
        "sampling",
    }, "the form has a seed of its own, too"
    refused = send(client, "check", seed=[""], **{"limits:parameters": ["3"]})
    assert opened(refused.text) == {"advanced", "limits"}


def test_uploads_are_picked_by_name_date_and_shape(client: TestClient) -> None:
    dataset = client.post("/v1/datasets", files={"file": ("<mine>.csv", CSV)}).json()
    model = upload_model(client, saved(plain(nn.GRU, outputs=10)), "my gru").json()
    page = client.get("/studies/new").text
    today = f"{now():%Y-%m-%d}"
    for field, upload, shape in (
        ("task:dataset:id", dataset, "classification, "),
        ("compress:model", model, "gru 6, 8 to 10, "),
    ):
        select = page.split(f'<select name="{field}"')[1].split("</select>")[0]
        options = {one["value"]: text for one, text in options_of(select)}
        assert options[upload["id"]].startswith(f"{upload['name']}, {today}, {shape}"), options
    unknown = client.get("/studies/new?dataset=d1").text
    assert filled_in(unknown)["task:dataset:id"] == ["d1"]


def options_of(select: str) -> list[tuple[dict[str, str | None], str]]:
    found = re.findall(r"<option[^>]*>([^<]*)", select)
    return list(zip(Elements(select).all("option"), map(unescape, found), strict=True))


def test_the_time_is_estimated_from_the_last_like_study(client: TestClient, site: Site) -> None:
    assert "unknown until the first trial" in client.get("/studies/new").text
    study = site.study(name="measured")
    site.run(study)
    site.trial(study, 0, state=TrialState.RUNNING)
    for epoch, seconds in enumerate((3.0, 2.0, 4.0), start=1):
        with site.database.write() as session:
            Metrics(session).put(study.id, 0, metric(epoch, seconds=seconds))
    page = client.get("/studies/new").text
    assert "about 15 min 00 s on one slot: 30 trials × 10 epochs × 3 s" in page
    assert "as in study “measured”" in page
    checked = send(client, "check", **{"budget:trials": ["4"], "budget:epochs": ["100"]})
    assert "about 20 min 00 s on one slot: 4 trials × 100 epochs × 3 s" in checked.text
    other = send(client, "check", task=["addition"])
    assert "unknown until the first trial" in other.text
