import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
from starlette.testclient import TestClient

SELDOM = {
    ("/v1/studies/{study_id}/trials/{number}/onnx", "202"),
    ("/v1/studies/{study_id}/trials/{number}/onnx_stream", "202"),
    ("/v1/studies/{study_id}/trials/{number}/c", "202"),
    ("/v1/studies/{study_id}/trials/{number}/dense", "202"),
    ("/v1/studies/{study_id}/trials/{number}/folder", "202"),
}
"""Answers that a server gives when it is slow."""

METHODS = ("get", "put", "post", "patch", "delete")


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method in METHODS:
            if method in methods:
                yield method, path, methods[method]


def test_every_operation_documents_its_problems(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    problem = {"$ref": "#/components/schemas/Problem"}
    for method, path, operation in operations(document):
        refusals = {s: r for s, r in operation["responses"].items() if s >= "400"}
        # A key or a lease token is asked for everywhere, but not for signs of life.
        guarded = {"401", "403", "429"} <= set(refusals)
        assert guarded or {"401", "409"} <= set(refusals) or operation["tags"] == ["health"], path
        if "{" in path:
            assert "404" in refusals, (method, path)
        for status, response in refusals.items():
            content = response["content"]
            assert list(content) == ["application/problem+json"], (method, path, status)
            assert content["application/problem+json"]["schema"] == problem


def test_every_reference_of_the_document_leads_somewhere(client: TestClient) -> None:
    document = client.get("/openapi.json").json()

    def references(node: Any) -> Iterator[str]:
        if isinstance(node, dict):
            if isinstance(node.get("$ref"), str):
                yield node["$ref"]
            # An example may be a schema itself, with references of its own.
            node = [child for name, child in node.items() if name != "example"]
        if isinstance(node, list):
            for child in node:
                yield from references(child)

    found = set(references(document))
    assert found
    for reference in found:
        target: Any = document
        for part in reference.removeprefix("#/").split("/"):
            target = target[part]
    assert "HTTPValidationError" not in document["components"]["schemas"]


def test_every_operation_has_words_and_a_name_of_its_own(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    found = list(operations(document))
    assert all(operation["description"] for _, _, operation in found)
    names = [operation["operationId"] for _, _, operation in found]
    assert len(set(names)) == len(names)


def test_the_docs_page_loads_swagger_and_nothing_from_elsewhere(client: TestClient) -> None:
    page = client.get("/docs")
    assert page.status_code == 200
    assert "//" not in page.text
    loaded = re.findall(r'(?:src|href)="(/assets/[^"]+)"', page.text)
    assert {"/assets/swagger/swagger-ui-bundle.js", "/assets/swagger/swagger-ui.css"} <= {*loaded}
    for path in loaded:
        assert client.get(path).status_code == 200, path
    init = client.get("/assets/docs.js").text
    assert "SwaggerUIBundle({" in init
    assert "//" not in re.sub(r"(?m)^\s*//.*$", "", init)


def test_files_of_swagger_are_found_and_not_imported() -> None:
    asked = (
        "import sys; from service.rendering.swagger import swagger_files; print(swagger_files()); "
        "assert 'fastapi_offline' not in sys.modules"
    )
    run = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert (Path(run.stdout.strip()) / "swagger-ui-bundle.js").is_file()


def test_the_dashboards_paths_are_no_part_of_the_contract(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    assert all(path.startswith(("/v1/", "/healthz", "/readyz", "/metrics")) for path in paths)


def test_every_answer_in_json_has_an_example_that_a_server_gave(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    for method, path, operation in operations(document):
        for status, response in operation["responses"].items():
            content = response.get("content", {}).get("application/json")
            if status > "299" or content is None or (path, status) in SELDOM:
                continue
            schema = {**content["schema"], "components": document["components"]}
            faults = jsonschema_rs.validator_for(schema).iter_errors(content["example"])
            assert [fault.message for fault in faults] == [], (method, path, status)


def test_every_body_in_json_has_an_example_that_is_valid(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    for method, path, operation in operations(document):
        content = operation.get("requestBody", {}).get("content", {}).get("application/json")
        if content is None:
            continue
        name = content["schema"]["$ref"].rsplit("/", 1)[1]
        schema = {**content["schema"], "components": document["components"]}
        examples = document["components"]["schemas"][name]["examples"]
        assert examples, (method, path)
        for example in examples:
            assert jsonschema_rs.validator_for(schema).is_valid(example), (method, path, example)
