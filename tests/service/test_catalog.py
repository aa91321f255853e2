from starlette.testclient import TestClient

from models.architectures import ARCHITECTURES
from models.parametrizations import PARAMETRIZATIONS
from models.spec import kind_of
from search.tasks import TASKS


def test_the_catalog_names_every_variant_with_its_paper_and_schema(client: TestClient) -> None:
    catalog = client.get("/v1/catalog").json()
    unions = {
        "architectures": ARCHITECTURES,
        "parametrizations": PARAMETRIZATIONS,
        "tasks": TASKS,
    }
    for name, union in unions.items():
        assert [entry["kind"] for entry in catalog[name]] == [kind_of(variant) for variant in union]
        for entry in catalog[name]:
            assert entry["title"]
            assert entry["paper"]
            assert entry["schema"]["properties"]["kind"]["const"] == entry["kind"]
    assert catalog["tasks"][0]["metric"]["name"] == "accuracy"
    assert catalog["presets"] == []


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
