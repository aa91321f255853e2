"""Column types that hold the same values on SQLite and PostgreSQL, and refuse the same ones."""

import json
import math
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, cast

from sqlalchemy import JSON, DateTime, Dialect, Double, Enum, Text
from sqlalchemy.exc import DontWrapMixin
from sqlalchemy.types import TypeDecorator

from storage.errors import UnstorableValue

LARGEST_INTEGER = 2**31 - 1
"""The largest number that an integer column holds on both databases."""


class _Refused(UnstorableValue, DontWrapMixin):
    """Passes through SQLAlchemy as it is, instead of inside a StatementError."""


def storable_text(text: str) -> str:
    """The text with what PostgreSQL does not hold (NUL, lone surrogates) replaced."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def dump_json(value: object) -> str:
    """JSON text that both databases take and give back as it was.

    Raises:
        UnstorableValue: if a number in it is NaN or infinite.
    """
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    except ValueError as error:
        raise _Refused(f"a JSON document holds only finite numbers: {error}") from error
    return text.encode("utf-8", "replace").decode("utf-8")


class CleanText(TypeDecorator[str]):
    """Text of any length; see `storable_text`."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        """Clean a value on its way in."""
        return None if value is None else storable_text(value)


class FiniteFloat(TypeDecorator[float]):
    """A double that is a number: SQLite turns NaN into NULL, and no front can use infinity."""

    impl = Double
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: Dialect) -> float | None:  # noqa: ARG002
        """Refuse NaN and infinity."""
        if value is None:
            return None
        if not math.isfinite(value):
            raise _Refused(f"{value} is not a finite number")
        return float(value)


class Instant(TypeDecorator[datetime]):
    """An aware time, in UTC; SQLite keeps it without its zone, in a form that sorts."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """Refuse a time without a zone, and turn any other into UTC."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise _Refused(f"{value!r} has no time zone; times are aware")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """Give the time in UTC, whatever the session's zone."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Texts(TypeDecorator[tuple[str, ...]]):
    """Several texts, as a JSON array."""

    impl = JSON
    cache_ok = True

    def process_bind_param(self, value: tuple[str, ...] | None, dialect: Dialect) -> Any:  # noqa: ARG002
        """Give the array, each of it cleaned: PostgreSQL would take it, and find no text in it."""
        return None if value is None else [storable_text(text) for text in value]

    def process_result_value(self, value: Any, dialect: Dialect) -> tuple[str, ...] | None:  # noqa: ARG002
        """Take the array."""
        return None if value is None else tuple(value)


def document() -> JSON:
    """A JSON column; None is SQL's NULL.

    Not JSONB on PostgreSQL: that gives 1e16 back as an integer and keys in another order, while a
    document here comes back as it was stored, number for number. No query looks inside one.
    """
    return JSON(none_as_null=True)


def word(words: type[StrEnum]) -> Enum:
    """A column of an enumeration's values, kept as text so that a new value needs no migration."""

    def values(kind: Any) -> list[str]:
        return [member.value for member in cast("type[StrEnum]", kind)]

    return Enum(
        words, native_enum=False, create_constraint=False, length=16, values_callable=values
    )
