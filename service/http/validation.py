"""What pydantic found wrong with a request, said in the request's own words.

Pydantic locates a fault in its own types (`space`, `hidden_size`, `range`, `low`: `range` is the
name of a union's member); a user knows the document that was sent. So each location is walked along
the document, and steps that it does not have are left out.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from search.documents.nearest import allowed_instead, meant
from service.http.problems import ProblemFault

_LONGEST_VALUE = 200
_MOST_ERRORS = 1000
"""How many of pydantic's errors are looked at: finding each place in the document takes time."""

_OF_WORDS = frozenset({"literal_error", "enum"})
"""Pydantic's errors about a word that is none of a few."""
_QUOTED = re.compile(r"'([^']*)'")
_ALL_KEYS = "the server's page /docs has all of them"
_ALL_KINDS = "GET /v1/catalog has all of them"

_ENCODER = json.JSONEncoder(default=str, ensure_ascii=False)


def faults(
    errors: Sequence[Mapping[str, Any]], *, body: Any, schema: Mapping[str, Any] | None
) -> list[ProblemFault]:
    """One fault per place, in the order found; several complaints about a place are joined.

    Args:
        errors: pydantic's own, located from `body`, `query`, `path` or `header` on.
        body: the parsed body.
        schema: the body's JSON schema with its `$defs` or OpenAPI components, to name allowed keys.
    """
    messages: dict[str, list[str]] = {}
    for error in errors[:_MOST_ERRORS]:
        path, message = _fault(error, body=body, schema=schema)
        if error["type"] == "too_short" and any(at.startswith(f"{path}.") for at in messages):
            # Pydantic counts the items that are valid: the list is short of those named before.
            continue
        said = messages.setdefault(path, [])
        if message not in said:
            said.append(message)
    return [ProblemFault(path=path, message=" or: ".join(said)) for path, said in messages.items()]


def _fault(
    error: Mapping[str, Any], *, body: Any, schema: Mapping[str, Any] | None
) -> tuple[str, str]:
    source, *steps = error["loc"]
    if source != "body":
        return ".".join(map(str, steps)), _with_value(error)
    kind: str = error["type"]
    if kind == "json_invalid":
        return "", f"the body is no JSON: {error['ctx']['error']} at character {steps[0]}"
    if not steps and kind == "value_error":
        return "", _with_value(error)
    if not steps:
        return "", "the body has to be a JSON object, sent as application/json"
    path = _document_path(steps, body, missing=kind == "missing")
    if kind == "extra_forbidden":
        key, allowed = str(steps[-1]), _allowed_keys(schema, steps[:-1])
        return path, f"unknown key {key!r}{allowed_instead(key, allowed, rest=_ALL_KEYS)}"
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        # The discriminator comes quoted, as pydantic prints it.
        return f"{path}.{error['ctx']['discriminator'].strip(chr(39))}", _tag_message(error)
    return path, _with_value(error)


def _tag_message(error: Mapping[str, Any]) -> str:
    context = error["ctx"]
    if "tag" not in context:
        return "this key is required"
    tag = str(context["tag"])
    kinds = _QUOTED.findall(str(context["expected_tags"]))
    return f"unknown kind {tag!r}{allowed_instead(tag, kinds, rest=_ALL_KINDS)}"


def _with_value(error: Mapping[str, Any]) -> str:
    if error["type"] == "missing":
        return "this is required"
    message: str = error["msg"]
    if error["type"] == "value_error":
        # These are our own sentences, which name the value.
        return message.removeprefix("Value error, ")
    question = ""
    if error["type"] in _OF_WORDS and isinstance(error["input"], str):
        question = meant(error["input"], _QUOTED.findall(str(error["ctx"]["expected"])))
    return f"{message}, not {_shown(error['input'])}{question}"


def _shown(value: Any) -> str:
    text = ""
    # Piece by piece: of a large document no more than is shown is written.
    for piece in _ENCODER.iterencode(value):
        text += piece
        if len(text) > _LONGEST_VALUE:
            return f"{text[:_LONGEST_VALUE]}..."
    return text


def _document_path(steps: Sequence[int | str], document: Any, *, missing: bool) -> str:
    parts: list[str] = []
    node = document
    for position, step in enumerate(steps):
        if _has(node, step):
            parts.append(str(step))
            node = node[step]
        elif missing and position == len(steps) - 1:
            parts.append(str(step))
    return ".".join(parts)


def _has(node: Any, step: int | str) -> bool:
    if isinstance(node, Mapping):
        return step in node
    return (
        isinstance(step, int)
        and isinstance(node, Sequence)
        and not isinstance(node, str | bytes)
        and step < len(cast("Sequence[Any]", node))
    )


def _allowed_keys(schema: Mapping[str, Any] | None, steps: Sequence[int | str]) -> list[str]:
    """The keys that the object at this place may have; none if the schema leads nowhere."""
    nodes = [] if schema is None else _members(schema, schema)
    for step in steps:
        nodes = [child for node in nodes for child in _children(schema or {}, node, step)]
    return sorted({key for node in nodes for key in node.get("properties", {})})


def _children(
    root: Mapping[str, Any], node: Mapping[str, Any], step: int | str
) -> list[Mapping[str, Any]]:
    """Where a step leads: into a property, an item or a map's value.

    A step that names a union's member stays where it is, if it is in that member.
    """
    if str(step) in node.get("properties", {}):
        return _members(root, node["properties"][str(step)])
    if isinstance(step, int) and "items" in node:
        return _members(root, node["items"])
    if isinstance(node.get("additionalProperties"), Mapping):
        return _members(root, node["additionalProperties"])
    kind = node.get("properties", {}).get("kind", {}).get("const")
    return [node] if step in (kind, str(node.get("title", "")).lower()) else []


def _members(root: Mapping[str, Any], node: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The node itself without references, or the members of the union that it is."""
    while "$ref" in node:
        target: Any = root
        for part in str(node["$ref"]).removeprefix("#/").split("/"):
            target = target[part]
        node = target
    union: Sequence[Mapping[str, Any]] = node.get("oneOf") or node.get("anyOf") or ()
    return [member for option in union for member in _members(root, option)] if union else [node]
