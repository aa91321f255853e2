"""Curves of trials that start from a trained network have an epoch 0, before any training."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    with op.batch_alter_table("metric") as batch:
        batch.alter_column("train_loss", existing_type=sa.Double(), nullable=True)


def downgrade() -> None:
    op.execute("DELETE FROM metric WHERE train_loss IS NULL")
    with op.batch_alter_table("metric") as batch:
        batch.alter_column("train_loss", existing_type=sa.Double(), nullable=False)
