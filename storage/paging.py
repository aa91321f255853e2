"""Pages of rows that are listed newest first, by their time and their id."""

from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from sqlalchemy import Select, tuple_
from sqlalchemy.orm import InstrumentedAttribute, Session

from storage.cursors import cursor_of, instant_and_id_behind
from storage.records import Page

_Row = TypeVar("_Row")
_Record = TypeVar("_Record")


def newest_first(
    session: Session,
    query: Select[_Row],
    order: tuple[InstrumentedAttribute[datetime], InstrumentedAttribute[str]],
    *,
    limit: int,
    cursor: str | None,
    record: Callable[[_Row], _Record],
) -> Page[_Record]:
    """One page of a query's rows.

    Args:
        session: in which to ask.
        query: which rows there are; it has no order yet.
        order: the columns of their time and of their id.
        limit: how many make a page.
        cursor: behind which row the page begins; null: at the newest.
        record: makes a row into what is given out.

    Raises:
        BadCursor: if the cursor was not given out by such a list.
    """
    if limit < 1:
        raise ValueError(f"limit {limit} is not 1 or more")
    query = query.order_by(*(column.desc() for column in order))
    if cursor is not None:
        query = query.where(tuple_(*order) < tuple_(*instant_and_id_behind(cursor)))
    rows = session.scalars(query.limit(limit + 1)).all()
    items = [record(row) for row in rows[:limit]]
    if len(rows) <= limit:
        return Page(items=items, next_cursor=None)
    last_at, last_id = (getattr(rows[limit - 1], column.key) for column in order)
    return Page(items=items, next_cursor=cursor_of(last_at.isoformat(), last_id))
