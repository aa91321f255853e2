"""What all log lines of a piece of work have in common: its study, trial, attempt or request.

Whoever begins the work binds the fields; whoever formats lines adds them. Code between the two
logs its events without knowing.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

_FIELDS: ContextVar[Mapping[str, str | int]] = ContextVar("reflectory_log_fields")


def bound_fields() -> Mapping[str, str | int]:
    """The fields that are bound where this is called."""
    return _FIELDS.get({})


@contextmanager
def bound(**fields: str | int) -> Generator[None]:
    """Bind fields within a block, beside those that are bound already."""
    token = _FIELDS.set({**bound_fields(), **fields})
    try:
        yield
    finally:
        _FIELDS.reset(token)


def bind_for_good(**fields: str | int) -> None:
    """Bind fields until the context ends: a task's, or a process's."""
    _FIELDS.set({**bound_fields(), **fields})
