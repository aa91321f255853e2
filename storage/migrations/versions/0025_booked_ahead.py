"""An attempt may be at its machine before its slot is free; its place is then booked ahead."""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"

_OPEN = sa.text("state IN ('assigned', 'running')")
_RUNNING = sa.text("state = 'running'")
_TAKES_ITS_PLACE = sa.text("state <> 'exited' AND NOT ahead")
_TAKEN = sa.text("state <> 'exited'")


def _index(
    name: str, table: str, columns: list[str], where: sa.TextClause, *, unique: bool = False
) -> None:
    op.create_index(name, table, columns, unique=unique, sqlite_where=where, postgresql_where=where)


def upgrade() -> None:
    ahead = sa.Column("ahead", sa.Boolean(), nullable=False, server_default=sa.false())
    op.add_column("booking", ahead)
    op.drop_index("uq_booking_place", "booking")
    place = ["machine_id", "place"]
    _index("uq_booking_place", "booking", place, _TAKES_ITS_PLACE, unique=True)
    op.drop_index("uq_attempt_running", "attempt")
    op.drop_index("ix_attempt_lease", "attempt")
    _index("uq_attempt_open", "attempt", ["study_id", "kind", "trial"], _OPEN, unique=True)
    _index("ix_attempt_lease", "attempt", ["lease_until"], _OPEN)


def downgrade() -> None:
    # What has not begun leaves nothing: its trial waits, and its machine hears that it is over.
    connection = op.get_bind()
    attempt = sa.table("attempt", sa.column("state", sa.Text()))
    connection.execute(sa.delete(attempt).where(attempt.c.state == "assigned"))
    booking = sa.table("booking", sa.column("ahead", sa.Boolean()))
    connection.execute(sa.delete(booking).where(booking.c.ahead))
    op.drop_index("ix_attempt_lease", "attempt")
    op.drop_index("uq_attempt_open", "attempt")
    _index("ix_attempt_lease", "attempt", ["lease_until"], _RUNNING)
    _index("uq_attempt_running", "attempt", ["study_id", "kind", "trial"], _RUNNING, unique=True)
    op.drop_index("uq_booking_place", "booking")
    _index("uq_booking_place", "booking", ["machine_id", "place"], _TAKEN, unique=True)
    op.drop_column("booking", "ahead")
