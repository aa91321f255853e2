"""What options say by name: `NAME=VALUE`, with units where people use them."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import typer
from pydantic import ByteSize, TypeAdapter, ValidationError

_BYTES = TypeAdapter(ByteSize)
_SECONDS: Mapping[str, float] = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
"""By unit; the longer ones stand before those that they end with."""
_EXAMPLE = "allowed is such as parameters=20000, bytes=300KB, agreement=99%, latency=2ms"


def limits_of(texts: Sequence[str]) -> Mapping[str, int | float]:
    """Limits by their names in a study's document; which there are the server knows.

    Bytes may have a unit (KB or kB are 1,000, KiB 1,024), shares a `%`, times us, ms or s.

    Raises:
        typer.BadParameter: a value is no number with a unit that its name has.
    """
    found: dict[str, int | float] = {}
    for text in texts:
        name, _, value = text.partition("=")
        read = _READERS.get(name, _number)
        try:
            found[_NAMES.get(name, name)] = _whole(read(value.strip()))
        except (ValueError, OverflowError) as error:
            raise typer.BadParameter(
                f"{text!r} names no number; {_EXAMPLE}", param_hint="--limit"
            ) from error
    return found


def pairs_of(texts: Sequence[str], *, option: str, example: str) -> Mapping[str, str]:
    """`NAME=VALUE` by name.

    Raises:
        typer.BadParameter: there is no name, no value, or a name stands twice.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if not name or not value or name in found:
            twice = f" names {name!r} twice" if name in found else " is no NAME=VALUE"
            raise typer.BadParameter(
                f"{text!r}{twice}; allowed is such as {example}", param_hint=option
            )
        found[name] = value
    return found


def numbers_of(texts: Sequence[str], *, option: str, example: str) -> Mapping[str, Any]:
    """`NAME=NUMBER` by name, or rows of numbers as JSON has them.

    Raises:
        typer.BadParameter: a value is neither.
    """
    found: dict[str, Any] = {}
    for name, value in pairs_of(texts, option=option, example=example).items():
        try:
            found[name] = _READ_JSON.validate_json(value)
        except ValidationError as error:
            raise typer.BadParameter(
                f"{name}={value} has no number, and no list of numbers; allowed is such as "
                f"{example}",
                param_hint=option,
            ) from error
    return found


def document_or_name(text: str, *, option: str, key: str = "kind") -> Mapping[str, Any]:
    """A document, or that of a thing of which nothing but the name is said.

    Raises:
        typer.BadParameter: it begins as a document and is none.
    """
    if not text.lstrip().startswith("{"):
        return {key: text}
    try:
        return json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is no JSON: {error}", param_hint=option) from error


def _number(text: str) -> float:
    return float(text)


def _size(text: str) -> float:
    try:
        return int(_BYTES.validate_python(text))
    except ValidationError as error:
        raise ValueError(text) from error


def _share(text: str) -> float:
    return float(text[:-1]) / 100 if text.endswith("%") else float(text)


def _time(text: str) -> float:
    unit = next((unit for unit in _SECONDS if text.endswith(unit)), "")
    return float(text.removesuffix(unit)) * _SECONDS.get(unit, 1.0)


_NAMES: Mapping[str, str] = {"latency": "latency_seconds"}
_READERS: Mapping[str, Callable[[str], float]] = {
    "agreement": _share,
    "bytes": _size,
    "latency": _time,
    "latency_seconds": _time,
    "memory_bytes": _size,
    "state_bytes": _size,
}


def _whole(number: float) -> int | float:
    # Whole numbers stay such, for what is counted is made of nothing else.
    return int(number) if float(number).is_integer() else number


_READ_JSON: TypeAdapter[float | list[Any]] = TypeAdapter(int | float | list[Any])
