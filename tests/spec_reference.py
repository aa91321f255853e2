"""Every field of a study spec, from the code.

`python -m tests.spec_reference > deploy/docs/reference/spec.md` writes the file. A test
holds the file to what this writes, and every field to having a description.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from search.spaces.dimension import ChoiceDimension
from search.spaces.draws import CornerSource, Recorder, SpaceDraw
from search.spaces.model_space import ARCHITECTURE_KINDS, PARAMETRIZATION_KINDS, Numbers
from search.spaces.space import describe
from search.studies.catalog import CatalogEntry, catalog
from search.studies.spec import StudySpec
from search.training.compression import Distillation
from search.training.trial_spec import TrainingSpec

_MANY = 15

Schema: TypeAlias = Mapping[str, Any]

_FOUND_OUT = frozenset({"kind", "facts"})
"""Fields that need no row: `kind` heads the section, `facts` are found out by the server."""

_HEAD = """# Every field of a study spec

What `POST /v1/studies` takes. Only `task` is required; unknown keys are refused anywhere. This file
is written by `python -m tests.spec_reference`, from the code itself.
"""

_SPACE = """## What is searched, unless `space` says otherwise

Each key may be replaced in `space` by a pin, a [range](#range) or [options](#options), as
`<kind>.<field>` or, for all kinds that have the field, as `<field>`. Ranges that depend on a
layer's size are those of hidden sizes up to 128 here; they follow a study's greatest one. A value
beyond what a layer holds is cut to it. Fields without a range keep their default, unless `space`
names them.
"""


def reference() -> str:
    """The whole document."""
    return "\n".join(_lines()) + "\n"


def without_description() -> list[str]:
    """Fields that nobody has described."""
    found: list[str] = []
    for title, schema in _sections():
        fields = schema.get("properties", {}).items()
        found += [f"{title}: {name}" for name, field in fields if not _told(name, field)]
    return found


def _lines() -> Iterator[str]:
    yield _HEAD
    for title, schema in _sections():
        yield f"## {title}\n"
        text = schema.get("description", "")
        if text:
            yield f"{_flowing(text)}\n"
        yield from _table(schema)
    yield _SPACE
    yield from _searched()


def _sections() -> Iterator[tuple[str, Schema]]:
    """The study, what is nested in it, and all that its unions name."""
    study = StudySpec.model_json_schema()
    definitions: Mapping[str, Schema] = study["$defs"]
    yield "The study", study
    skipped = {name for name in definitions if name.endswith("Facts")} | {"Scaling"}
    # What a model is that a study compresses; all architectures come from the catalog below.
    skipped |= {variant.__name__ for variant in ARCHITECTURE_KINDS.values()}
    for name, schema in definitions.items():
        if name in skipped:
            continue
        kind = schema.get("properties", {}).get("kind", {}).get("const")
        yield (f"`{kind}`" if kind else name), schema
    known = catalog()
    for entry in (*known.architectures, *known.parametrizations):
        yield _titled(entry), entry.json_schema
    yield "`model`", Numbers.model_json_schema()
    training = TrainingSpec.model_json_schema()
    yield "`training`", training
    yield from training["$defs"].items()
    yield "`compress`", Distillation.model_json_schema()


def _titled(entry: CatalogEntry) -> str:
    return f"`{entry.kind}`: {entry.title}"


def _told(name: str, field: Schema) -> bool:
    return name in _FOUND_OUT or "description" in field


def _table(schema: Schema) -> Iterator[str]:
    fields = {
        name: field
        for name, field in schema.get("properties", {}).items()
        if name not in _FOUND_OUT
    }
    if not fields:
        yield "No fields.\n"
        return
    required = schema.get("required", ())
    yield "| field | what it takes | default | |"
    yield "|---|---|---|---|"
    for name, field in fields.items():
        default = "required" if name in required else _default(field)
        cells = (f"`{name}`", _kind(field), default, _flowing(field.get("description", "")))
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
    yield ""


def _default(field: Schema) -> str:
    default = field.get("default")
    if isinstance(default, Mapping):
        return "as below"
    if "default" not in field or default == []:
        return "none"
    return f"`{json.dumps(default)}`"


def _kind(field: Schema) -> str:
    """What a field takes, in a few words."""
    if "$ref" in field:
        return f"[{_name(field)}](#{_name(field).lower()})"
    if "discriminator" in field:
        return "one of " + ", ".join(f"`{kind}`" for kind in field["discriminator"]["mapping"])
    for union in ("anyOf", "oneOf"):
        if union in field:
            return " or ".join(dict.fromkeys(_kind(member) for member in field[union]))
    if len(field.get("enum", ())) > _MANY:
        return "names that `reflectory catalog` lists"
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if "const" in field:
        return f"`{json.dumps(field['const'])}`"
    if field.get("type") == "array":
        return f"a list of {_kind(field.get('items', {}))}"
    if field.get("type") == "object":
        values = field.get("additionalProperties")
        return (
            f"an object, each value {_kind(values)}" if isinstance(values, Mapping) else "an object"
        )
    return _plain(field)


def _plain(field: Schema) -> str:
    names = {"string": "text", "number": "a number", "integer": "an integer"}
    type_name: str = field.get("type", "anything")
    text = names.get(type_name, type_name)
    bounds = {
        "minimum": "from {:,}",
        "exclusiveMinimum": "above {:,}",
        "maximum": "to {:,}",
        "exclusiveMaximum": "below {:,}",
        "maxLength": "of at most {:,} characters",
    }
    words = [form.format(field[name]) for name, form in bounds.items() if name in field]
    return " ".join([text, *words])


def _name(field: Schema) -> str:
    return str(field["$ref"]).rpartition("/")[2]


def _searched() -> Iterator[str]:
    spec = StudySpec.model_validate(
        {
            "task": {"kind": "digits"},
            "architectures": list(ARCHITECTURE_KINDS),
            "parametrizations": list(PARAMETRIZATION_KINDS),
        }
    )
    yield "| key | range |"
    yield "|---|---|"
    learning = Recorder(CornerSource(highest=True))
    Distillation.suggest(SpaceDraw("compress", {}, learning))
    for dimension in (*describe(spec).dimensions, *learning.dimensions.values()):
        if isinstance(dimension, ChoiceDimension):
            if "." in dimension.name and not dimension.name.endswith(".parametrization"):
                yield f"| `{dimension.name}` | {_listed(dimension.options)} |"
            continue
        steps = f", in steps of {dimension.step:g}" if dimension.step not in (None, 1) else ""
        form = ", logarithmic" if dimension.log else ""
        yield f"| `{dimension.name}` | {dimension.low:g} to {dimension.high:g}{form}{steps} |"


def _listed(values: Iterable[object]) -> str:
    return ", ".join(f"`{value}`" for value in values)


def _flowing(text: str) -> str:
    """A docstring's text as one paragraph."""
    return re.sub(r"\s+", " ", text).strip()


if __name__ == "__main__":
    sys.stdout.write(reference())
