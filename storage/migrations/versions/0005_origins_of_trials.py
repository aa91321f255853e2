"""Trials tell who named them, what they repeat or continue, and why they were stopped early."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    origin = sa.Column("origin", sa.String(16), nullable=False, server_default=sa.text("'sampler'"))
    op.add_column("trial", origin)
    op.add_column("trial", sa.Column("repeats", sa.Integer()))
    op.add_column("trial", sa.Column("continues", sa.Integer()))
    op.add_column("trial", sa.Column("stopping", sa.JSON()))


def downgrade() -> None:
    for column in ("stopping", "continues", "repeats", "origin"):
        op.drop_column("trial", column)
