"""Attempts know the number of the newest item that an agent sent of them; none sent any before."""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"


def upgrade() -> None:
    op.add_column(
        "attempt", sa.Column("last_seq", sa.Integer(), nullable=False, server_default="0")
    )


def downgrade() -> None:
    op.drop_column("attempt", "last_seq")
