from pathlib import Path

from starlette.testclient import TestClient

from models.architectures import ARCHITECTURES
from models.parametrizations import PARAMETRIZATIONS
from models.spec import kind_of
from search.graphs.model_outputs import ModelOutputs
from search.samplers import KnownCost
from search.studies.spec import StudySpec
from search.tasks import TASKS
from service.app import create_app
from tests.real_data import real_data
from tests.service.site import Site


def test_the_catalog_names_every_variant_with_its_paper_and_schema(client: TestClient) -> None:
    catalog = client.get("/v1/catalog").json()
    unions = {
        "architectures": ARCHITECTURES,
        "parametrizations": PARAMETRIZATIONS,
        "tasks": (*TASKS, ModelOutputs),
    }
    for name, union in unions.items():
        assert [entry["kind"] for entry in catalog[name]] == [kind_of(variant) for variant in union]
        for entry in catalog[name]:
            assert entry["title"]
            assert entry["paper"]
            assert entry["schema"]["properties"]["kind"]["const"] == entry["kind"]
    assert catalog["tasks"][0]["metric"]["name"] == "accuracy"


def test_the_catalog_names_all_that_a_document_may_name_of_samplers_and_stopping_rules(
    client: TestClient,
) -> None:
    catalog = client.get("/v1/catalog").json()
    schema = StudySpec.model_json_schema()["properties"]
    [rules, _null] = schema["early_stopping"]["anyOf"]
    for name, union in (("samplers", schema["sampler"]), ("stopping_rules", rules)):
        kinds = [entry["kind"] for entry in catalog[name]]
        assert sorted(kinds) == sorted(union["discriminator"]["mapping"])
        for entry in catalog[name]:
            assert entry["summary"].endswith(".")
            assert entry["schema"]["properties"]["kind"]["const"] == entry["kind"]
    [known_cost] = [entry for entry in catalog["samplers"] if entry["kind"] == "known_cost"]
    assert set(known_cost["schema"]["properties"]) == set(KnownCost.model_fields)


def test_every_export_of_the_catalog_is_had_under_its_name(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    exports = client.get("/v1/catalog").json()["exports"]
    alone, in_the_folder = ["checkpoint", "onnx", "onnx_stream", "dense"], ["c", "example"]
    assert sorted(entry["kind"] for entry in exports) == sorted([*alone, *in_the_folder])
    for entry in exports:
        assert entry["summary"].endswith(".")
    for name in (*alone, "folder"):
        assert "get" in paths[f"/v1/studies/{{study_id}}/trials/{{number}}/{name}"]


def test_a_pair_that_is_not_defined_has_a_reason(client: TestClient) -> None:
    catalog = client.get("/v1/catalog").json()
    kinds = {entry["kind"] for entry in catalog["parametrizations"]}
    for architecture, defined in catalog["combinations"].items():
        refused = catalog["refusals"][architecture]
        assert set(refused) == kinds - set(defined)
        for parametrization, sentence in refused.items():
            assert sentence.startswith(f"{architecture}.")
            assert f": {parametrization}: " in sentence
    assert "real matrices" in catalog["refusals"]["urnn"]["low_rank"]


NEED_FILES = ("ucr", "language", "multilabel")
"""Tasks of presets whose data are licensed: a user who does not have them is told so."""


def test_presets_are_ready_to_be_sent(client: TestClient) -> None:
    presets = client.get("/v1/catalog").json()["presets"]
    assert len({preset["name"] for preset in presets}) == len(presets) >= 30
    for preset in presets:
        assert preset["title"]
        assert preset["paper"]
        assert preset["description"]
        answer = client.post("/v1/studies?dry_run=true", json=preset["spec"])
        if preset["spec"]["task"]["kind"] in NEED_FILES:
            assert answer.status_code == 422
            assert "REFLECTORY_DATA" in answer.json()["errors"][0]["message"]
            continue
        assert answer.status_code == 200, answer.text
        assert {
            "architecture": preset["architecture"]["kind"],
            "parametrization": preset["parametrization"]["kind"],
        } in answer.json()["candidates"]


def test_presets_whose_data_are_there_are_taken(tmp_path: Path) -> None:
    site = Site(tmp_path / "data", data_sets=real_data())
    here = {"base_url": "http://localhost:8080", "client": ("127.0.0.1", 50000)}
    with TestClient(create_app(site.settings), **here) as client:
        for preset in client.get("/v1/catalog").json()["presets"]:
            if preset["spec"]["task"]["kind"] in NEED_FILES:
                answer = client.post("/v1/studies?dry_run=true", json=preset["spec"])
                assert answer.status_code == 200, answer.text
    site.close()


def test_an_unknown_preset_is_refused_with_those_there_are(client: TestClient) -> None:
    spec = {"task": {"kind": "digits"}, "presets": ["rnn-129"]}
    answer = client.post("/v1/studies", json=spec)
    assert answer.status_code == 422
    [fault] = answer.json()["errors"]
    assert fault["path"] == "presets.0"
    assert "'rnn-129'" in fault["message"]
    assert "rnn-128" in fault["message"]


def test_exactly_the_combinations_of_the_catalog_are_taken(client: TestClient) -> None:
    catalog = client.get("/v1/catalog").json()
    for architecture, parametrizations in catalog["combinations"].items():
        for entry in catalog["parametrizations"]:
            spec = {
                "task": {"kind": "digits"},
                "architectures": [architecture],
                "parametrizations": [entry["kind"]],
            }
            answer = client.post("/v1/studies?dry_run=true", json=spec)
            taken = entry["kind"] in parametrizations
            assert answer.status_code == (200 if taken else 422), answer.text
