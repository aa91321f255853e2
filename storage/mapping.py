"""Rows and records, mapped by the names of their fields: no repository copies field by field."""

from collections.abc import Callable
from dataclasses import Field, fields
from operator import attrgetter
from typing import Any, ClassVar, Protocol, TypeVar

from sqlalchemy import Row
from sqlalchemy.orm import InstrumentedAttribute

from storage.tables import Table


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


_Record = TypeVar("_Record", bound=_Dataclass)


def reader(record: type[_Record], *given: str) -> Callable[..., _Record]:
    """A function that makes a row into a record, whose fields the row has under the same names.

    Fields that are `given` are no columns: they are passed to the function by name.
    """
    names = [field.name for field in fields(record) if field.name not in given]
    values = attrgetter(*names)

    def read(row: Table | Row[Any], **others: Any) -> _Record:
        return record(**dict(zip(names, values(row), strict=True)), **others)

    return read


def columns_of(
    record: type[_Dataclass], table: type[Table], *given: str
) -> list[InstrumentedAttribute[Any]]:
    """The columns of a table that a record has, in the order of its fields; `given` are none."""
    return [getattr(table, field.name) for field in fields(record) if field.name not in given]


def all_columns(table: type[Table]) -> list[InstrumentedAttribute[Any]]:
    """Every column of a table."""
    return [getattr(table, column.key) for column in table.__mapper__.column_attrs]


def values_of(record: _Dataclass, *others: str) -> dict[str, Any]:
    """What a record's row has in its columns; `others` are the fields that are none."""
    return {name: value for name, value in vars(record).items() if name not in others}
