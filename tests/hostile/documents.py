"""Bodies by the OpenAPI document: valid ones, and those with one part that nobody would send."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Schema: TypeAlias = Mapping[str, Any]

_DEPTH = 12
_LONG = "a 10 MB string"
STRINGS = {
    "a lone surrogate": '"\\ud800"',
    "a surrogate within": '"a\\udfffb"',
    "a NUL": '"a\\u0000b"',
    _LONG: '"' + "x" * 10_000_000 + '"',
    "a number": "1" + "0" * 400,
}
NUMBERS = {
    "10^400": "1" + "0" * 400,
    "-10^400": "-1" + "0" * 400,
    "1e400": "1e400",
    "NaN": "NaN",
    "a string": '"\\ud800"',
}
_MARK = "\ue000the part\ue000"


@dataclass(frozen=True)
class Strange:
    """A document with one strange part, as text."""

    place: str
    what: str
    _around: str
    _value: str

    @property
    def text(self) -> str:
        """The whole document, which may be long."""
        return self._around.replace(json.dumps(_MARK), self._value)


class Documents:
    """Makes documents by the components of an OpenAPI document."""

    def __init__(self, openapi: Mapping[str, Any]) -> None:
        self._openapi = openapi

    def strange(self, schema: Schema) -> Iterator[Strange]:
        """Every document that differs from a valid one in one string, number or key."""
        for place, marked, kind in self._marked(schema, "", 0):
            text = json.dumps(marked)
            values = STRINGS if kind == "string" else NUMBERS
            for what, value in values.items():
                yield Strange(place, what, text, value)

    def valid(self, schema: Schema, depth: int = 0) -> Any:
        """Some value of a schema; what need not be there is not, unless an example has it."""
        schema = self._resolved(schema)
        for given in ("const", "default", "example"):
            if given in schema:
                return schema[given]
        if schema.get("examples"):
            return schema["examples"][0]
        if "enum" in schema:
            return schema["enum"][0]
        if branches := self._branches(schema):
            return self.valid(branches[0], depth)
        kind = self._kind(schema)
        if kind == "object":
            required = set(schema.get("required", ()))
            return {
                name: self.valid(part, depth + 1)
                for name, part in schema.get("properties", {}).items()
                if name in required
            }
        if kind == "array":
            fewest = schema.get("minItems", 0) if depth < _DEPTH else 0
            return [self.valid(schema.get("items", {}), depth + 1) for _ in range(fewest)]
        if kind == "string":
            return "a" * max(1, schema.get("minLength", 1))
        if kind in ("integer", "number"):
            return max(schema.get("minimum", 1), schema.get("exclusiveMinimum", 0) + 1)
        return {"boolean": True, "null": None}.get(kind, {})

    def _marked(self, schema: Schema, place: str, depth: int) -> Iterator[tuple[str, Any, str]]:
        """Valid values in which one string or number is the mark: its place, and what it was."""
        schema = self._resolved(schema)
        if depth > _DEPTH:
            return
        branches = self._branches(schema)
        for branch in branches:
            yield from self._marked(branch, place, depth)
        if branches:
            return
        kind = self._kind(schema)
        if kind in ("string", "integer", "number"):
            yield place, _MARK, "string" if kind == "string" else "number"
        elif kind == "array":
            # A tuple has its items one by one.
            items = schema.get("prefixItems") or [schema.get("items", {})]
            for number, item in enumerate(items):
                for inner, value, what in self._marked(item, f"{place}[{number}]", depth + 1):
                    whole = [self.valid(one, depth + 1) for one in items]
                    whole[number] = value
                    yield inner, whole, what
        elif kind == "object":
            base = self.valid(schema, depth)
            for name, part in schema.get("properties", {}).items():
                for inner, value, what in self._marked(part, f"{place}.{name}", depth + 1):
                    yield inner, {**base, name: value}, what
            others = schema.get("additionalProperties")
            if isinstance(others, Mapping):
                yield f"{place}.<key>", {**base, _MARK: self.valid(others, depth + 1)}, "string"
                for inner, value, what in self._marked(others, f"{place}.<value>", depth + 1):
                    yield inner, {**base, "hidden_size": value}, what

    def _resolved(self, schema: Schema) -> Schema:
        while "$ref" in schema:
            found: Any = self._openapi
            for part in schema["$ref"].removeprefix("#/").split("/"):
                found = found[part]
            schema = found
        return schema

    def _branches(self, schema: Schema) -> list[Schema]:
        return [
            branch
            for word in ("oneOf", "anyOf", "allOf")
            for branch in schema.get(word, ())
            if branch.get("type") != "null"
        ]

    def _kind(self, schema: Schema) -> str:
        kind = schema.get("type", "object" if "properties" in schema else "any")
        return (
            next((one for one in kind if one != "null"), "any") if isinstance(kind, list) else kind
        )
