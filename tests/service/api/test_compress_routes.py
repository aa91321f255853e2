"""What a study may say of a model that it compresses, over the API."""

import csv
import hashlib
import io
from typing import Any

import httpx2
import pytest
from rich.console import Console
from starlette.testclient import TestClient
from torch import nn

from models.compression import FITS
from models.model import ModelSpec
from models.parametrizations import PARAMETRIZATIONS
from models.spec import kind_of
from search.errors import OriginalUnresolved
from search.spaces.space import SearchSpace
from search.studies.spec import StudySpec
from service.api.fronts.schemas import FrontDocument
from service.commands.shown.tables import front_table
from storage.records import MeasurementRecord, StudyState, TrialState
from storage.repositories.measurements import Measurements
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials
from tests.service.model_files import ours, plain, saved, spec_of, upload_model
from tests.service.site import Lease, Site

ROWS = {"kind": "digits", "layout": "rows"}
UNCONVERTIBLE = [kind_of(one) for one in PARAMETRIZATIONS if one not in FITS]


@pytest.fixture
def model(client: TestClient) -> str:
    answer = upload_model(client, saved(plain(nn.GRU, outputs=10)))
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def asked(client: TestClient, model: str, *, dry: bool = True, **given: Any) -> httpx2.Response:
    compress = {"model": model, **given.pop("compress", {})}
    spec = {"task": ROWS, "compress": compress, **given}
    return client.post("/v1/studies", json=spec, params={"dry_run": dry})


def refused(answer: httpx2.Response, path: str, *words: str) -> None:
    assert answer.status_code == 422, answer.text
    faults = {fault["path"]: fault["message"] for fault in answer.json()["errors"]}
    assert path in faults, faults
    for word in words:
        assert word in faults[path], faults


def test_the_space_is_that_of_the_forms_and_of_training(client: TestClient, model: str) -> None:
    space = asked(client, model, compress={"distillation": True}).json()
    names = {dimension["name"] for dimension in space["dimensions"]}
    assert {"parametrization", "low_rank.d", "training.learning_rate"} <= names
    assert {"compress.temperature", "compress.distillation_weight"} <= names
    assert not any(name.startswith("gru.") for name in names)
    assert {candidate["architecture"] for candidate in space["candidates"]} == {"gru"}
    plainly = asked(client, model).json()
    assert not any(d["name"].startswith("compress.") for d in plainly["dimensions"])
    original = client.get(f"/v1/models/{model}").json()["parameters"]
    assert plainly["parameter_range"]["low"] < original <= plainly["parameter_range"]["high"]


def test_a_temperature_may_be_pinned_and_a_dropout_be_searched(
    client: TestClient, model: str
) -> None:
    space = {
        "compress.temperature": 3.0,
        "readout_dropout": {"low": 0.0, "high": 0.5},
        "hidden_size": 6,
    }
    answer = asked(client, model, compress={"distillation": True}, space=space)
    names = {dimension["name"] for dimension in answer.json()["dimensions"]}
    assert "gru.readout_dropout" in names
    assert "compress.temperature" not in names


def test_what_does_not_fit_is_refused_with_its_place(client: TestClient, model: str) -> None:
    refused(asked(client, "0" * 12), "compress.model", "no model", "0" * 12)
    pixels = {"kind": "digits", "layout": "pixels"}
    refused(asked(client, model, task=pixels), "compress.model", "features per step 8", "has 1")
    few = upload_model(client, saved(plain(nn.GRU, outputs=3))).json()["id"]
    refused(asked(client, few, dry=False), "compress.model", "outputs 3", "has 10")
    assert client.get("/v1/studies").json()["items"] == []
    refused(asked(client, model, architectures=["rnn"]), "architectures", "'gru'", "rnn")
    assert asked(client, model, architectures=["gru"]).status_code == 200
    refused(asked(client, model, space={"hidden_size": 12}), "space.hidden_size", "6")
    refused(
        asked(client, model, space={"gru.layers": {"low": 1, "high": 2}}), "space.gru.layers", "1"
    )
    refused(asked(client, model, presets=["rnn-128"]), "compress", "presets")
    refused(asked(client, model, space={"compress.temperature": 2}), "space.compress.temperature")
    hot = asked(client, model, compress={"distillation": True}, space={"compress.temperature": 0})
    refused(hot, "space.compress.temperature", "0")


@pytest.mark.parametrize("kind", UNCONVERTIBLE)
def test_a_form_without_a_conversion_is_refused_by_its_name(
    client: TestClient, model: str, kind: str
) -> None:
    answer = asked(client, model, parametrizations=["low_rank", kind])
    refused(answer, "parametrizations.1", kind, "allowed are", "low_rank")


def test_a_form_for_complex_matrices_is_no_candidate_for_real_ones(
    client: TestClient, model: str
) -> None:
    space = asked(client, model, parametrizations=["low_rank", "unitary_full"]).json()
    assert [pair["parametrization"] for pair in space["candidates"]] == ["low_rank"]
    answer = asked(client, model, parametrizations=["unitary_full"])
    assert answer.status_code == 422, answer.text
    assert "unitary_full" in answer.text, answer.text


def test_the_stored_study_knows_the_model_and_believes_nobody(
    client: TestClient, site: Site, model: str
) -> None:
    lie = {"sha256": "0" * 64, "architecture": {"kind": "rnn", "hidden_size": 3}}
    answer = asked(client, model, dry=False, compress={"facts": lie})
    assert answer.status_code == 202, answer.text
    document = client.get(f"/v1/models/{model}").json()
    spec = client.get(answer.json()["links"]["study"]).json()["spec"]
    assert spec["compress"]["facts"]["sha256"] == document["sha256"]
    assert spec["compress"]["facts"]["architecture"] == document["architecture"]
    assert spec["architectures"] == ["gru"]
    space = SearchSpace(StudySpec.model_validate(spec))
    original = space.original()
    assert original.spec.model.parameter_count() == document["parameters"]
    assert original.drawn == {}


def test_a_study_that_nobody_looked_up_has_no_space() -> None:
    spec = StudySpec.model_validate(
        {"task": ROWS, "architectures": ["gru"], "compress": {"model": "a"}}
    )
    with pytest.raises(OriginalUnresolved, match="a"):
        SearchSpace(spec)


def test_a_model_in_use_is_kept_until_its_study_has_ended(
    client: TestClient, site: Site, model: str
) -> None:
    study = asked(client, model, dry=False).json()["id"]
    kept = client.delete(f"/v1/models/{model}")
    assert kept.status_code == 409
    assert study in kept.json()["detail"]
    with site.database.read() as session:
        record = Studies(session).get(study)
    site.run(record)
    site.finish(record, StudyState.FINISHED)
    assert client.delete(f"/v1/models/{model}").status_code == 204
    again = client.patch(f"/v1/studies/{study}", json={"budget": {"trials": 60}})
    assert again.status_code == 409
    assert model in again.json()["detail"]


def test_a_study_that_compresses_nothing_starts_from_no_other_study_that_does(
    client: TestClient, model: str
) -> None:
    study = asked(client, model, dry=False).json()["id"]
    spec: dict[str, Any] = {"task": ROWS, "architectures": ["gru"], "warm_start": [study]}
    spec |= {"sampler": {"kind": "known_cost"}}
    answer = client.post("/v1/studies", json=spec, params={"dry_run": True})
    refused(answer, "warm_start.0", "initialisation", model)
    same = asked(client, model, warm_start=[study])
    assert same.status_code == 200, same.text


def test_a_structured_checkpoint_of_ours_is_compressed_from_its_plain_form(
    client: TestClient,
) -> None:
    spec: ModelSpec = spec_of({"kind": "rnn", "hidden_size": 12}, kind="low_rank", d=2)
    uploaded = upload_model(client, ours(spec)[1]).json()
    answer = asked(client, uploaded["id"], parametrizations=["low_rank"])
    assert answer.status_code == 200, answer.text
    assert answer.json()["parameter_range"]["high"] == spec.dense_twin().parameter_count()


def test_a_worker_reads_the_original_of_its_own_study_and_no_other(
    client: TestClient, site: Site, model: str
) -> None:
    compressing = asked(client, model, dry=False).json()["id"]
    leases: list[Lease] = []
    for study_id in (compressing, site.study().id):
        with site.database.read() as session:
            study = Studies(session).get(study_id)
        site.run(study)
        site.trial(study, 0, state=TrialState.RUNNING)
        leases.append(site.lease(study, 0))
    own, other = (
        client.get(lease.path("artifacts/original"), headers=lease.headers) for lease in leases
    )
    assert own.status_code == 200
    digest = client.get(f"/v1/models/{model}").json()["sha256"]
    assert hashlib.sha256(own.content).hexdigest() == digest
    assert other.status_code == 404
    stored = client.put(
        leases[0].path("artifacts/original"), headers=leases[0].headers, content=b"x"
    )
    assert stored.status_code == 409


@pytest.mark.parametrize(("activation", "torch_has_it"), [("tanh", True), ("abs", False)])
def test_a_point_that_is_smaller_but_slower_says_so(
    client: TestClient, site: Site, activation: str, torch_has_it: bool
) -> None:
    space = {"hidden_size": 8, "rnn.activation": activation}
    study = site.study(parametrizations=["low_rank"], space=space)
    cases: list[tuple[int, Any, bool]] = [
        (10, {"median": 0.8, "low": 0.7, "high": 0.95}, True),
        (20, {"median": 0.95, "low": 0.9, "high": 1.02}, False),
        (30, None, False),
        (10**6, {"median": 0.8, "low": 0.7, "high": 0.9}, False),
    ]
    for number, (parameters, ratio, _) in enumerate(cases):
        quality = 0.5 + number / 10
        trial = site.trial(study, number, quality=quality, parameters=parameters)
        measurement = MeasurementRecord(
            **{"id": f"m{number}", "study_id": study.id, "trial": number, "seconds": 0.5},
            shape_key=str(number),
            device="a test's CPU",
            samples_per_second=100.0,
            ratio=0.8,
            record={} if ratio is None else {"ratio": ratio},
            created_at=trial.created_at,
        )
        with site.database.write() as session:
            Measurements(session).add(study.id, measurement)
            Trials(session).set_throughput(study.id, number, measurement)
    path = f"/v1/studies/{study.id}/front"
    for query in ("", "?throughput=latest"):
        points = client.get(f"{path}{query}").json()["points"]
        assert [point["slower"] for point in points] == [slower for *_, slower in cases]
        assert {point["form"] for point in points} == {"structured"}
    rows = list(csv.DictReader(io.StringIO(client.get(f"{path}?format=csv").text)))
    assert [row["slower"] for row in rows] == [str(slower) for *_, slower in cases]
    assert {row["form"] for row in rows} == {"structured"}
    told = io.StringIO()
    Console(file=told, width=120).print(
        front_table(FrontDocument.model_validate(client.get(path).json()))
    )
    lines = [line.strip() for line in told.getvalue().splitlines()]
    assert lines.count("slower") == 1
    for words in ("measured with matrices as stored", "slower: smaller than the dense baseline"):
        assert words in " ".join(lines)
    page = client.get(f"/studies/{study.id}").text
    assert page.count("smaller but slower") == 1
    assert "with its matrices as they are stored" in page
    assert (f"/v1/studies/{study.id}/trials/0/dense" in page) is torch_has_it
    links = [point["links"]["dense"] for point in client.get(path).json()["points"]]
    trials = [
        client.get(f"/v1/studies/{study.id}/trials/{number}").json()["links"]["dense"]
        for number in range(len(cases))
    ]
    assert links == trials
    assert all((link is not None) is torch_has_it for link in links)


def test_a_dense_file_is_refused_where_torch_has_no_such_layer(
    client: TestClient, site: Site
) -> None:
    study = site.study(architectures=["highway"], parametrizations=["dense"], space={})
    site.trial(study, 0, quality=0.5)
    site.trial(study, 1, state=TrialState.RUNNING)
    path = f"/v1/studies/{study.id}/trials"
    refusal = client.get(f"{path}/0/dense")
    assert refusal.status_code == 422, refusal.text
    assert "highway has no counterpart among plain torch.nn layers" in refusal.json()["detail"]
    waits = client.get(f"{path}/1/dense")
    assert (waits.status_code, "no checkpoint" in waits.json()["detail"]) == (404, True)
