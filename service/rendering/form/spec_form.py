"""Between a filled-in form and the document of a study, both ways.

Names of fields are parts of the document, joined by colons: `task:digits:layout` is the `layout`
of a task that is `digits`, and counts only where that one is chosen.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from models.spec import kind_of
from search.errors import Fault, SpecRefused
from search.graphs.model_outputs import ModelOutputs
from search.spaces.dimension import Dimension
from search.studies.spec import NOT_OF_A_NETWORK, StudySpec
from search.tasks import Digits
from service.rendering.form.form_fields import Field, FormFields, Variant
from service.rendering.form.range_text import override_of, text_of

Values: TypeAlias = Mapping[str, Sequence[str]]
"""What a form holds: the name of a field -> what was filled in or ticked."""

NETWORKS = kind_of(ModelOutputs)
"""The task that trains nothing."""

EXTRA = "extra"
"""The field for all that has no field of its own, as JSON."""

_LISTS = ("architectures", "parametrizations", "objectives", "presets")
_PARTS = ("compress", "limits", "budget", "throughput", "export")
"""What is an object of words and numbers."""
_WHOLE = ("seed", "priority", "confirm")
"""What is one whole number."""
_NONE = "none"
"""Stands for null where a union may be left out on purpose."""


def document_of(form: FormFields, values: Values) -> dict[str, Any]:
    """The document that a form describes; what is left open is left out.

    Raises:
        ExtraRefused: the part that is JSON is none.
        SpecRefused: a range is none.
    """
    found: dict[str, Any] = {name: list(values.get(name, ())) for name in _LISTS}
    bounds = {
        name: _filled(fields, values)
        for name, fields in form.bounds.items()
        if name in found["objectives"]
    }
    if any(bounds.values()):
        # A name that no form offers is for the document's own check to refuse.
        found["objectives"] = {name: bounds.get(name, {}) for name in found["objectives"]}
    for name in _PARTS:
        found[name] = _filled(getattr(form, name), values)
    if found["compress"]:
        # It is the model's, whatever is ticked.
        found["architectures"] = []
    else:
        del found["compress"]
    for name, variants in (
        ("task", form.tasks),
        ("sampler", form.samplers),
        ("early_stopping", form.stopping),
    ):
        kind = _only(values, name)
        variant = next((one for one in variants if one.kind == kind), None)
        if variant is not None:
            found[name] = {"kind": kind, **_filled(variant.fields, values)}
        elif kind == _NONE:
            found[name] = None
        elif kind:
            # A name that no form offers is for the document's own check to refuse.
            found[name] = {"kind": kind}
    found["space"] = _overrides(_searchable(form, found), values)
    if "compress" in found:
        del found["architectures"]
    for name in _WHOLE:
        if _only(values, name):
            found[name] = _number(_only(values, name))
    if _only(values, "task") == NETWORKS:
        # A network of others has no parts that say how models are trained.
        found = {name: part for name, part in found.items() if name not in NOT_OF_A_NETWORK}
    if _only(values, "name"):
        found["name"] = _only(values, "name")
    return _merged(found, _extra(_only(values, EXTRA)))


def values_of(form: FormFields, document: Mapping[str, Any]) -> dict[str, list[str]]:
    """What a form would hold that describes this document; `extra` has what no field is for."""
    left = cast(dict[str, Any], json.loads(json.dumps(dict(document))))
    values: dict[str, list[str]] = {}
    if isinstance(objectives := left.get("objectives"), dict):
        bounds = cast(dict[str, dict[str, Any]], objectives)
        for name, fields in form.bounds.items():
            values |= {f.name: [_text(bounds.get(name, {}).get(_key(f)))] for f in fields}
    for name in _LISTS:
        values[name] = [str(one) for one in left.pop(name, ())]
    for name in ("name", *_WHOLE):
        values[name] = [_text(left.pop(name, None))]
    for name in _PARTS:
        _take(left, name, getattr(form, name), values)
    for name, variants in (
        ("task", form.tasks),
        ("sampler", form.samplers),
        ("early_stopping", form.stopping),
    ):
        part = left.get(name)
        if not isinstance(part, dict):
            values[name] = [_NONE if name in left and part is None else ""]
            left.pop(name, None)
            continue
        kind = str(cast(dict[str, Any], part).pop("kind", ""))
        values[name] = [kind]
        variant = next((one for one in variants if one.kind == kind), None)
        _take(left, name, () if variant is None else variant.fields, values)
    space = left.get("space", {})
    for dimension in _searchable(form, {name: values[name] for name in _LISTS}):
        text = text_of(space.get(dimension.name), dimension)
        if text is not None:
            values[f"space:{dimension.name}"] = [text]
            del space[dimension.name]
    usual = StudySpec(task=Digits()).model_dump(mode="json")
    extra = {
        name: value
        for name, value in left.items()
        if value not in ({}, None) and value != usual.get(name)
    }
    values[EXTRA] = [json.dumps(extra, indent=2, ensure_ascii=False) if extra else ""]
    return values


def usual_values(form: FormFields) -> dict[str, list[str]]:
    """What a form holds before anybody has filled it in: a study as it is by default."""
    values = values_of(form, StudySpec(task=Digits()).model_dump(mode="json"))
    # The default of each depends on the rest of the document.
    return {**values, "name": [""], "sampler": [""], "early_stopping": [_NONE]}


def fields_of_faults(
    form: FormFields, values: Values, faults: Iterable[Fault]
) -> tuple[dict[str, list[str]], list[Fault]]:
    """Faults by the name of the field that they stand beside, and those that belong to no field."""
    places: dict[str, str] = {name: name for name in (*_LISTS, "name", *_WHOLE, EXTRA)}
    places |= {name: name for name in ("task", "sampler", "early_stopping")}
    places["compress"] = form.compress[0].name
    fields = [field for name in _PARTS for field in getattr(form, name)]
    fields += [field for name in form.bounds for field in form.bounds[name]]
    for name, variants in (
        ("task", form.tasks),
        ("sampler", form.samplers),
        ("early_stopping", form.stopping),
    ):
        fields += [f for one in variants if one.kind == _only(values, name) for f in one.fields]
    places |= {field.path: field.name for field in fields}
    for variant in (*form.architectures, *form.parametrizations):
        places |= {f"space.{one.name}": f"space:{one.name}" for one in variant.ranges}
    places |= {f"space.{one.name}": f"space:{one.name}" for one in form.shared}
    beside: dict[str, list[str]] = {}
    others: list[Fault] = []
    for fault in faults:
        # The field itself, or else the part of the document that it is in.
        owners = [p for p in places if fault.path == p or fault.path.startswith(f"{p}.")]
        if owners:
            beside.setdefault(places[max(owners, key=len)], []).append(fault.message)
        else:
            others.append(fault)
    return beside, others


def touched(form: FormFields, values: Values, beside: Mapping[str, Any]) -> set[str]:
    """The fields that have faults, or hold something else than before anybody filled them in."""
    usual = usual_values(form)
    changed = {
        name for name, given in values.items() if [*given] not in (usual.get(name, [""]), [""])
    }
    return changed | {*beside}


def aimed(form: FormFields, values: Values, fragment: Mapping[str, Any]) -> dict[str, list[str]]:
    """What a form holds when a part of a spec is put on top of what it describes.

    Raises:
        ExtraRefused: the part that is JSON is none.
        SpecRefused: a range is none.
    """
    document = _merged(document_of(form, values), fragment)
    found = values_of(form, document)
    # What a document of this task has no place for stays as it is.
    left = {name: [*given] for name, given in values.items() if not found.get(name)}
    return {**found, **left}


class ExtraRefused(ValueError):
    """The form's JSON is no JSON object; says where it breaks off."""


def _overrides(dimensions: Iterable[Dimension], values: Values) -> dict[str, Any]:
    """What a form says of dimensions, by their names."""
    found: dict[str, Any] = {}
    refused: list[Fault] = []
    for dimension in dimensions:
        text = _only(values, f"space:{dimension.name}")
        try:
            if text:
                found[dimension.name] = override_of(text, dimension)
        except ValueError as error:
            refused.append(Fault(f"space.{dimension.name}", str(error)))
    if refused:
        raise SpecRefused(refused)
    return found


def _searchable(form: FormFields, found: Mapping[str, Any]) -> list[Dimension]:
    """What can be searched of the candidates that are chosen."""
    chosen: list[Variant] = [
        *(one for one in form.architectures if one.kind in found["architectures"]),
        *(one for one in form.parametrizations if one.kind in found["parametrizations"]),
    ]
    return [*form.shared, *(dimension for one in chosen for dimension in one.ranges)]


def _filled(fields: Iterable[Field], values: Values) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in fields:
        text = _only(values, field.name)
        if text:
            found[_key(field)] = _value(field, text)
    return found


def _key(field: Field) -> str:
    """The field's name in its part of the document."""
    return field.path.rpartition(".")[2]


def _value(field: Field, text: str) -> Any:
    if field.input in ("integer", "number"):
        return _number(text)
    return {"true": True, "false": False}.get(text, text) if field.input == "choice" else text


def _take(
    left: dict[str, Any], part: str, fields: Iterable[Field], values: dict[str, list[str]]
) -> None:
    """Move what there are fields for out of a part of a document."""
    found = cast(dict[str, Any], left.get(part) or {})
    for field in fields:
        values[field.name] = [_text(found.pop(_key(field), None))]
    if not {name: value for name, value in found.items() if value is not None}:
        left.pop(part, None)


def _number(text: str) -> Any:
    """The number that a text is, the text itself where it is none, null where there is none."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text or None


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)


def _only(values: Values, name: str) -> str:
    return values[name][0].strip() if values.get(name) else ""


def _extra(text: str) -> Mapping[str, Any]:
    try:
        found: object = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise ExtraRefused(f"this is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise ExtraRefused('this has to be a JSON object, such as {"confirm": 2}')
    return cast(Mapping[str, Any], found)


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """One document on top of another; objects are joined, all else is replaced."""
    merged = dict(below)
    for name, value in above.items():
        known = merged.get(name)
        if isinstance(known, dict) and isinstance(value, dict):
            value = _merged(cast(dict[str, Any], known), cast(dict[str, Any], value))
        merged[name] = value
    return merged
