"""Cursors of keyset-paged lists: opaque, url-safe, and refused when no list gave them out."""

import base64
import json
from datetime import UTC, datetime

from storage.columns import LARGEST_INTEGER
from storage.errors import BadCursor


def cursor_of(*key: str | int) -> str:
    """The cursor that stands behind the row with this key."""
    return _encoded(json.dumps(key, separators=(",", ":")).encode())


def number_behind(cursor: str) -> int:
    """The number in a cursor of a list that is ordered by number.

    Raises:
        BadCursor: if it is none.
    """
    match _decoded(cursor):
        case [int(number)] if not isinstance(number, bool) and 0 <= number <= LARGEST_INTEGER:
            return number
        case _:
            raise _bad(cursor)


def instant_and_id_behind(cursor: str) -> tuple[datetime, str]:
    """The time and the id in a cursor of a list that is ordered by both.

    Raises:
        BadCursor: if it is none.
    """
    match _decoded(cursor):
        case [str(instant), str(row_id)]:
            try:
                at = datetime.fromisoformat(instant)
                if at.tzinfo is None:
                    raise _bad(cursor)
                return at.astimezone(UTC), row_id
            except (ValueError, OverflowError) as error:
                raise _bad(cursor) from error
        case _:
            raise _bad(cursor)


def _decoded(cursor: str) -> object:
    try:
        text = base64.urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        # Decoding overlooks characters that are not its own.
        if _encoded(text) != cursor:
            raise _bad(cursor)
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _bad(cursor) from error


def _encoded(text: bytes) -> str:
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def _bad(cursor: str) -> BadCursor:
    return BadCursor(
        f"{cursor[:80]!r} is no cursor of this list; take `next_cursor` of a page, or none"
    )
