"""Cursors: what a list gave out leads back, and nothing else does, whatever was sent."""

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.cursors import cursor_of, instant_and_id_behind, number_behind
from storage.errors import BadCursor
from tests.storage.records import START

_LARGEST = 2**31 - 1


@given(number=st.integers(0, _LARGEST))
def test_a_number_comes_back(number: int) -> None:
    assert number_behind(cursor_of(number)) == number


@given(row_id=st.text())
def test_a_time_and_an_id_come_back_from_a_cursor_that_is_safe_in_a_url(row_id: str) -> None:
    cursor = cursor_of(START.isoformat(), row_id)
    assert re.fullmatch(r"[A-Za-z0-9_-]+", cursor)
    assert instant_and_id_behind(cursor) == (START, row_id)


@given(cursor=st.text() | st.text("WzEsMl0-_=").map(lambda text: "W" + text))
def test_any_text_is_a_cursor_or_is_refused(cursor: str) -> None:
    for read in (number_behind, instant_and_id_behind):
        with suppress(BadCursor):
            read(cursor)


@pytest.mark.parametrize(
    "cursor",
    [
        cursor_of(True),
        cursor_of(-1),
        cursor_of(_LARGEST + 1),
        cursor_of("1"),
        cursor_of(1, 2),
        cursor_of(START.isoformat(), "id"),
        "W" * 100_000,
        "WzFd=",
        "",
    ],
)
def test_what_no_list_by_number_gave_out_is_refused(cursor: str) -> None:
    with pytest.raises(BadCursor, match="no cursor") as raised:
        number_behind(cursor)
    assert len(str(raised.value)) < 200


@pytest.mark.parametrize(
    "cursor",
    [
        cursor_of(1),
        cursor_of("yesterday", "id"),
        cursor_of("2026-01-01T00:00:00", "id"),
        cursor_of(START.isoformat(), 3),
        cursor_of("9999-12-31T23:59:59-23:59", "id"),
    ],
)
def test_what_no_list_by_time_gave_out_is_refused(cursor: str) -> None:
    with pytest.raises(BadCursor, match="no cursor"):
        instant_and_id_behind(cursor)
