"""Places on machines are taken with the attempts' rows; none is reserved for a moment any more."""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"


def upgrade() -> None:
    booking = sa.table("booking", sa.column("state", sa.Text()))
    op.get_bind().execute(sa.delete(booking).where(booking.c.state == "reserved"))


def downgrade() -> None:
    """Older programs reserve places themselves."""
