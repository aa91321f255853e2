"""`http.md`: every call, from the OpenAPI document."""

import tempfile
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

from service.app import create_app
from service.settings import Settings
from tests.references.markdown import flowing, table, written_by

_OLD_NAMES = {
    "413": "request entity too large",
    "416": "requested range not satisfiable",
    "422": "unprocessable entity",
}
"""Names that versions of Python before 3.13 have for a status."""

_METHODS = ("get", "post", "put", "patch", "delete")
_HEAD = """\
Every server shows the same at `/docs`, with schemas and examples, and serves it as
`/openapi.json`. Errors are RFC 9457 problem documents, see [errors](errors.md).
"""


def page() -> Iterator[str]:
    """The lines of the page."""
    yield "# HTTP"
    yield ""
    yield written_by("every call of the API, from its OpenAPI document")
    yield ""
    yield _HEAD
    with tempfile.TemporaryDirectory() as folder:
        document = create_app(Settings(data_dir=Path(folder))).openapi()
    operations = [
        (method.upper(), path, operation)
        for path, item in document["paths"].items()
        for method, operation in item.items()
        if method in _METHODS
    ]
    tags = dict.fromkeys(_tag(operation) for _, _, operation in operations)
    for tag in tags:
        yield ""
        yield f"## {tag}"
        for method, path, operation in operations:
            if _tag(operation) == tag:
                yield from _section(method, path, operation)


def _tag(operation: Mapping[str, Any]) -> str:
    return str(next(iter(operation.get("tags", ())), "other"))


def _section(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield ""
    yield f"### {method} {path}"
    text = str(operation.get("description", ""))
    if text:
        yield ""
        yield text.strip()
    parameters = [one for one in operation.get("parameters", ()) if one["in"] != "path"]
    if parameters:
        yield ""
        rows = (
            (f"`{one['name']}`", one["in"], flowing(str(one.get("description", ""))))
            for one in parameters
        )
        yield from table(("parameter", "in", "what it is"), rows)
    body = operation.get("requestBody", {}).get("content", {})
    if body:
        kinds = ", ".join(f"`{kind}`" for kind in body)
        yield ""
        yield f"Body: {kinds}."
    answers = {status: answer.get("description", "") for status, answer in _answers(operation)}
    said = ", ".join(
        f"`{status}`" + (f" ({flowing(text)})" if _says_more(status, text) else "")
        for status, text in answers.items()
    )
    yield ""
    yield f"Answers: {said}."


def _answers(operation: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    return sorted(operation["responses"].items())


def _says_more(status: str, text: str) -> bool:
    """Whether a description is more than the status's own name."""
    known = {one.phrase.lower() for one in HTTPStatus} | {"successful response"}
    names = known | {_OLD_NAMES.get(status, "")}
    return text.lower() not in names
