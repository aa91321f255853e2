"""The OpenAPI document: the framework's, with our problems, typed events, examples and links."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from service.api.events.payloads import stream_schema
from service.http.problems import Problem, documented

EXAMPLES = Path(__file__).with_name("openapi_examples.json")
"""What a real server answered: by operation and status; `python -m tests.openapi_examples`."""

_METHODS = ("get", "put", "post", "patch", "delete")

# Tags of operations that are open to all, or have a credential of their own.
_UNGUARDED = frozenset({"health", "workers"})

# What an operation's answer names, and so where another one may go on from: its status and, by path
# parameter, where the value stands.
_LINKS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "submit_study": ("202", {"study_id": "$response.body#/id"}),
    "enqueue_trial": (
        "202",
        {"study_id": "$request.path.study_id", "number": "$response.body#/number"},
    ),
    "submit_collection": ("202", {"collection_id": "$response.body#/id"}),
    "upload_dataset": ("201", {"dataset_id": "$response.body#/id"}),
    "upload_model": ("201", {"model_id": "$response.body#/id"}),
}


def describe(app: FastAPI) -> None:
    """Have the application tell its document so; made once, when it is asked for."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = generate()
            _tell_of_the_gate(document)
            _name_our_problems(document)
            _tell_refused_bodies(document)
            _tell_events(document)
            _show_examples(document)
            _link(document)
        assert app.openapi_schema is not None
        return app.openapi_schema

    app.openapi = openapi


def _operations(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for methods in document["paths"].values():
        yield from (methods[method] for method in _METHODS if method in methods)


def _tell_of_the_gate(document: dict[str, Any]) -> None:
    """Say what guards operations, and how those that it turns away are answered."""
    schemes = document["components"].setdefault("securitySchemes", {})
    schemes["ApiKey"] = {
        "type": "http",
        "scheme": "bearer",
        "description": "an API key; until the first is made, the server's own machine needs none",
    }
    for operation in _operations(document):
        if not _UNGUARDED.intersection(operation["tags"]):
            operation["security"] = [{"ApiKey": []}, {}]
            for status, answer in documented(401, 403, 429).items():
                operation["responses"].setdefault(str(status), answer)


def _name_our_problems(document: dict[str, Any]) -> None:
    """Name our problem document wherever the framework names its own."""
    schemas = document["components"]["schemas"]
    problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas.update(problem.pop("$defs", {}))
    schemas["Problem"] = problem
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    for operation in _operations(document):
        if "422" in operation["responses"]:
            operation["responses"]["422"] = documented(422)[422]


def _tell_refused_bodies(document: Mapping[str, Any]) -> None:
    """Bodies that are no text, too large, encoded, or none that is parsed, reach no route."""
    for operation in _operations(document):
        if "requestBody" in operation:
            for status, answer in documented(400, 413, 415, 422).items():
                operation["responses"].setdefault(str(status), answer)


def _tell_events(document: dict[str, Any]) -> None:
    """Say of event streams what their events tell; the framework knows that they are events."""
    schema = stream_schema(document["components"]["schemas"])
    for operation in _operations(document):
        stream = operation["responses"].get("200", {}).get("content", {}).get("text/event-stream")
        if stream is not None:
            # A response of our own counts as one string to the framework.
            stream.pop("schema", None)
            stream["itemSchema"] = schema


def _show_examples(document: dict[str, Any]) -> None:
    examples: Mapping[str, Mapping[str, Any]] = json.loads(EXAMPLES.read_text(encoding="utf-8"))
    for operation in _operations(document):
        for status, example in examples.get(operation["operationId"], {}).items():
            content = operation["responses"][status]["content"]["application/json"]
            content.setdefault("example", example)


def _link(document: dict[str, Any]) -> None:
    """Say which operations an answer leads to: those of the thing that it names."""
    operations = {operation["operationId"]: operation for operation in _operations(document)}
    for source, (status, values) in _LINKS.items():
        operations[source]["responses"][status]["links"] = {
            name: {"operationId": name, "parameters": {key: values[key] for key in needed}}
            for name, operation in operations.items()
            if (needed := sorted(values.keys() & _path_parameters(operation)))
        }


def _path_parameters(operation: Mapping[str, Any]) -> set[str]:
    return {
        parameter["name"]
        for parameter in operation.get("parameters", ())
        if parameter["in"] == "path"
    }
