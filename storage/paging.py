"""Pages of rows that are listed newest first, by their time and their id."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Row, Select, bindparam, tuple_
from sqlalchemy.orm import Session
from sqlalchemy.sql import select

from storage.cursors import cursor_of, instant_and_id_behind
from storage.mapping import all_columns
from storage.records import Page
from storage.tables import Table
from storage.tenants import run

_Record = TypeVar("_Record")


def newest_first(
    session: Session,
    table: type[Table],
    *,
    at: str = "created_at",
    limit: int,
    cursor: str | None,
    record: Callable[[Row[Any]], _Record],
    where: Sequence[ColumnElement[bool]] = (),
    **equal: object,
) -> Page[_Record]:
    """One page of a table's rows.

    Args:
        session: in which to ask.
        table: whose rows; their ids are in its column `id`.
        at: the column of their time.
        limit: how many make a page.
        cursor: behind which row the page begins; null: at the newest.
        record: makes a row into what is given out.
        where: other conditions that the listed rows hold.
        equal: columns, and what stands in them in the rows that are listed.

    Raises:
        BadCursor: if the cursor was not given out by such a list.
    """
    if limit < 1:
        raise ValueError(f"limit {limit} is not 1 or more")
    asked = {"rows": limit + 1, **equal}
    if cursor is not None:
        asked["after_at"], asked["after_id"] = instant_and_id_behind(cursor)
    statement = _statement(table, at, tuple(equal), cursor is not None)
    if where:
        statement = statement.where(*where)
    rows = run(session, statement, asked).all()
    items = [record(row) for row in rows[:limit]]
    if len(rows) <= limit:
        return Page(items=items, next_cursor=None)
    last = rows[limit - 1]
    return Page(items=items, next_cursor=cursor_of(getattr(last, at).isoformat(), last.id))


@cache
def _statement(
    table: type[Any], at: str, equal: tuple[str, ...], behind: bool
) -> Select[*tuple[Any, ...]]:
    order = (getattr(table, at), table.id)
    query = (
        select(*all_columns(table))
        .where(*(getattr(table, name) == bindparam(name) for name in equal))
        .order_by(*(column.desc() for column in order))
        .limit(bindparam("rows"))
    )
    if not behind:
        return query
    after = (bindparam("after_at", type_=order[0].type), bindparam("after_id", type_=order[1].type))
    return query.where(tuple_(*order) < tuple_(*after))
