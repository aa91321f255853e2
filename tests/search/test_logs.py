"""One line per event, whatever is logged; ids that are bound stand in every line meanwhile."""

import json
import logging
import threading
from typing import Any

import pytest

from search.logs import JsonLines, LogFormat, TextLines, bound, bound_fields, lines_of, readable

EVIL = "a\r\nb\x1b[31m\u2028c"


def record(message: str = "it happened", *args: Any, **extra: Any) -> logging.LogRecord:
    made = logging.LogRecord(
        "search.running.store_watch", logging.WARNING, __file__, 1, message, args, None
    )
    vars(made).update(extra)
    return made


def event(made: logging.LogRecord) -> dict[str, Any]:
    return json.loads(JsonLines("api").format(made))


def test_a_json_line_has_time_level_process_logger_message_and_fields() -> None:
    made = record("%d studies wait", 3, study_id="s", folder=threading)
    made.created = 1767225600.25
    assert event(made) == {
        "time": "2026-01-01T00:00:00.250Z",
        "level": "WARNING",
        "process": "api",
        "logger": "search.running.store_watch",
        "message": "3 studies wait",
        "study_id": "s",
        "folder": str(threading),
    }


def test_bound_fields_stand_in_every_line_of_their_block_and_no_longer() -> None:
    with bound(study_id="s"), bound(trial=3):
        made = event(record(study_id="another"))
        assert (made["study_id"], made["trial"]) == ("another", 3)
        assert TextLines("api").format(record()).endswith("it happened study_id='s' trial=3")
    assert "study_id" not in event(record())
    assert bound_fields() == {}


def test_a_field_takes_the_place_of_none_of_ours() -> None:
    made = event(record(level="DEBUG", time="yesterday", error="none"))
    assert (made["level"], made["time"][:2]) == ("WARNING", "20")


@pytest.mark.parametrize("form", ["text", "json"])
def test_nothing_that_is_logged_begins_a_line(form: LogFormat) -> None:
    made = record(f"asked for {EVIL}", path=EVIL)
    line = lines_of(form, "api").format(made)
    assert len(line.splitlines()) == 1
    assert "\x1b" not in line
    if form == "json":
        assert json.loads(line)["path"] == EVIL


def test_a_traceback_is_one_field_of_json_and_lines_for_people() -> None:
    try:
        raise RuntimeError("broken")
    except RuntimeError as error:
        made = record(exc_info=(type(error), error, error.__traceback__))
    found = event(made)
    assert found["error"].endswith("RuntimeError: broken")
    in_words = readable(JsonLines("worker").format(made) + "\n").splitlines()
    assert in_words[0].endswith("WARNING search.running.store_watch: it happened")
    assert in_words[1:] == found["error"].splitlines()


@pytest.mark.parametrize("line", ["plain words\n", "{}\n", '{"time": "half a li', ""])
def test_other_lines_are_read_as_they_are(line: str) -> None:
    assert readable(line) == line
