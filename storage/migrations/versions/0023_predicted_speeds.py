"""Trials keep the speed that was predicted for them, where they trained before it was measured."""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    predicted = sa.Column("predicted", sa.JSON(), nullable=False, server_default=sa.text("'{}'"))
    op.add_column("trial", predicted)


def downgrade() -> None:
    op.drop_column("trial", "predicted")
