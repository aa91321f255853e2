"""Where attempts log: each to its own file, also where several are at work in one process."""

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from typing import Final, TypeVar, final

from search.agents.executor import AttemptTicket
from search.logs import JsonLines, bind_for_good

_Answer = TypeVar("_Answer")

_TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"

_OWN: ContextVar[logging.Handler] = ContextVar("reflectory_own_log")


def formatter_of(ticket: AttemptTicket) -> logging.Formatter:
    """How the lines of an attempt's log are written."""
    # The file is this attempt's alone, and read by people: fields would say the same each time.
    return JsonLines("worker") if ticket.log_format == "json" else logging.Formatter(_TEXT)


@final
class ByAttempt(logging.Handler):
    """Writes what is logged within an `AttemptLog` there, and all else with another handler."""

    def __init__(self, otherwise: logging.Handler) -> None:
        super().__init__()
        self._otherwise = otherwise

    def emit(self, record: logging.LogRecord) -> None:
        """Pass a record on to whom it concerns."""
        _OWN.get(self._otherwise).handle(record)

    def close(self) -> None:
        """Close the other handler; each attempt's log is closed at its own end."""
        self._otherwise.close()
        super().close()


@final
class AttemptLog:
    """The log of one attempt of a stack: what concerns that alone is done within it."""

    def __init__(self, ticket: AttemptTicket, path: str) -> None:
        self._handler = logging.FileHandler(path)
        self._handler.setFormatter(formatter_of(ticket))
        self._context = Context()
        self._context.run(_OWN.set, self._handler)
        if ticket.log_format == "json":
            self._context.run(lambda: bind_for_good(**ticket.log_fields))

    def within(self, work: Callable[[], _Answer]) -> _Answer:
        """Do a piece of work whose lines go here, with the fields of this attempt."""
        # In a copy, for another thread may be within this one just now.
        return self._context.copy().run(work)

    def close(self) -> None:
        """Close the file."""
        self._handler.close()


@contextmanager
def handling(otherwise: logging.Handler) -> Generator[None]:
    """Have what is logged meanwhile go to the attempt whom it concerns, and else here as well.

    Whatever handlers there are stay.
    """
    root = logging.getLogger()
    level, handler = root.level, ByAttempt(otherwise)
    root.addHandler(handler)
    root.setLevel(min(level or logging.INFO, logging.INFO))
    try:
        yield
    finally:
        root.setLevel(level)
        root.removeHandler(handler)
        handler.close()
