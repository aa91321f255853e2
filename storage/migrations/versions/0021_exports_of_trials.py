"""Trials keep what came of making their files: how each was verified, or why there is none."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    exports = sa.Column("exports", sa.JSON(), nullable=False, server_default=sa.text("'{}'"))
    op.add_column("trial", exports)


def downgrade() -> None:
    op.drop_column("trial", "exports")
