"""Documents made of rows by the names of their fields."""

from typing import Any, TypeVar

from pydantic import BaseModel

_M = TypeVar("_M", bound=BaseModel)


def from_row(schema: type[_M], row: object, /, **given: Any) -> _M:
    """A document of a row: fields that are not given are the row's of the same names."""
    found = {name: getattr(row, name) for name in schema.model_fields if name not in given}
    return schema(**found, **given)
