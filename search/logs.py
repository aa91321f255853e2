"""Log lines: their two forms, and the fields that all lines of a piece of work have in common.

What is logged may come from anywhere, a request's path for one. Neither form, the one for people
and the one as JSON, lets it begin a line of its own: text escapes what could, and JSON does so by
itself. The fields are a study, trial, attempt or request: what begins the work binds them, and the
formatter adds them, so that code between the two logs its events without knowing.
"""

import json
import logging
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Literal

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


LogFormat = Literal["text", "json"]

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}
# What ends a line somewhere, and what a terminal obeys.
_ESCAPED = "\n\r\v\f\b\x1b\x1c\x1d\x1e\x85\u2028\u2029"
_ESCAPES = str.maketrans({sign: repr(sign)[1:-1] for sign in _ESCAPED})
_BEGINNING = '{"time": '


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """What was bound where the event was logged, and what was given as `extra`."""
    given = {name: value for name, value in vars(record).items() if name not in _PLAIN}
    return {**bound_fields(), **given}


class TextLines(logging.Formatter):
    """`time level process logger: event field=value ...`."""

    def __init__(self, process: str) -> None:
        super().__init__(
            f"%(asctime)s.%(msecs)03d %(levelname)-7s {process} %(name)s: %(message)s",
            datefmt="%Y-%m-%d %H:%M:%S",
        )

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's own name
        """The line, with the fields after it."""
        line = super().formatMessage(record).translate(_ESCAPES)
        return " ".join([line, *(f"{key}={value!r}" for key, value in fields_of(record).items())])


class JsonLines(logging.Formatter):
    """One object per event: `time`, `level`, `process`, `logger`, `message`, and the fields.

    `error` has the traceback where there is one. Ids are `study_id`, `trial`, `attempt_id` and
    `request_id`.
    """

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """The object; what JSON cannot say is said in words."""
        at = datetime.fromtimestamp(record.created, UTC)
        event: dict[str, Any] = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "process": self._process,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            event["error"] = self.formatException(record.exc_info)
        fields = fields_of(record)
        event.update({name: fields[name] for name in fields if name not in event})
        return json.dumps(event, default=str)


def lines_of(form: LogFormat, process: str) -> logging.Formatter:
    """The formatter of a form."""
    return JsonLines(process) if form == "json" else TextLines(process)


def is_event(line: str) -> bool:
    """Whether a line is one of `JsonLines`."""
    return line.startswith(_BEGINNING)


def readable(line: str) -> str:
    """A line as people read it: of `JsonLines` in words, and any other as it is."""
    if not is_event(line):
        return line
    try:
        event: Mapping[str, Any] = json.loads(line)
        words = f"{event['time']} {event['level']} {event['logger']}: {event['message']}"
    except (ValueError, KeyError):
        # A killed process leaves half a line behind.
        return line
    return (
        "\n".join([words, *(str(event["error"]).splitlines() if "error" in event else ())]) + "\n"
    )
