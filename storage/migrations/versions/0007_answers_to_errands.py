"""Errands that a trial comes of say which one."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.add_column("errand", sa.Column("trial", sa.Integer()))


def downgrade() -> None:
    op.drop_column("errand", "trial")
