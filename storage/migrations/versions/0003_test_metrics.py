"""Trials keep everything that their task measures on the test split."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("trial", sa.Column("test_metrics", sa.JSON()))


def downgrade() -> None:
    op.drop_column("trial", "test_metrics")
