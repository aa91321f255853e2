"""Reading what a server answers, also one that is newer or older than this client.

Fields that the client does not know are left out. Where an answer does not fit its schema it is
read again with more patience: a field that an older server does not send has the value that it
stands for, and a word that a newer server has is taken as it is.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, Field, TypeAdapter, ValidationError, create_model
from pydantic.fields import FieldInfo

_T = TypeVar("_T")

_CONTAINERS: tuple[Any, ...] = (tuple, list, dict)

_COUNTS = (
    "total",
    "queued",
    "running",
    "paused",
    "complete",
    "stopped",
    "infeasible",
    "failed",
    "cancelled",
    "refused",
    "epochs_trained",
    "dense_parameters",
    "recovered_batches",
    "stood_still_seconds",
)

_NOT_SENT: Mapping[str, Any] = {
    **dict.fromkeys(_COUNTS, 0),
    "created_at": datetime.fromtimestamp(0, UTC),
    "detail": "",
    "form": "structured",
    "id": "",
    "on_front_by_mean": True,
    "origin": "sampler",
    "paper": "",
    "path": "",
    "seeds": 1,
    "slower": False,
    "state": "valid",
    "throughput": "search",
    "unit": "",
    "used": True,
}
"""What a field stands for that an older server does not send, where null does not say it."""


def read(kind: type[_T], content: bytes | str) -> _T:
    """The JSON of an answer as a document.

    Raises:
        ValidationError: the answer has another form.
    """
    try:
        return TypeAdapter(kind).validate_json(content, extra="ignore")
    except ValidationError:
        patient: TypeAdapter[_T] = TypeAdapter(_patient(kind))
        return patient.validate_json(content, extra="ignore")


def _patient(kind: Any) -> Any:
    """A type that takes what older and newer servers send in its place."""
    origin: Any = get_origin(kind)
    arguments = get_args(kind)
    if _is_a(kind, BaseModel):
        return _patient_model(kind)
    if origin is Literal or _is_a(kind, Enum):
        return Union[kind, str]  # noqa: UP007
    if origin is Annotated:
        # The members of a union differ by a word, which is one of those that are known.
        apart = any(isinstance(part, FieldInfo) and part.discriminator for part in arguments[1:])
        return kind if apart else _patient(arguments[0])
    if origin in (Union, UnionType):
        return Union[tuple(_patient(part) for part in arguments)]  # noqa: UP007
    if origin in _CONTAINERS:
        return origin[tuple(part if part is ... else _patient(part) for part in arguments)]
    return kind


def _is_a(kind: Any, base: type) -> bool:
    return isinstance(kind, type) and issubclass(kind, base)


@cache
def _patient_model(schema: type[BaseModel]) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    for name, field in schema.model_fields.items():
        default = _default(name, field)
        fields[name] = (_patient(field.annotation), Field(default=default, alias=field.alias))
    return create_model(schema.__name__, __base__=schema, **fields)


def _default(name: str, field: FieldInfo) -> Any:
    if not field.is_required():
        return field.get_default(call_default_factory=True)
    if type(None) in get_args(field.annotation):
        return None
    origin: Any = get_origin(field.annotation)
    return _NOT_SENT.get(name, origin() if origin in _CONTAINERS else ...)
