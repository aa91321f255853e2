"""Learning curves tell of gradients: their norms at both ends, and batches that had none."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_NUMBER: sa.Double[float] = sa.Double()


def upgrade() -> None:
    op.add_column("metric", sa.Column("gradient_first", _NUMBER))
    op.add_column("metric", sa.Column("gradient_last", _NUMBER))
    # Epochs from before are known to have needed no recovery: there was none.
    op.add_column(
        "metric",
        sa.Column("recovered_batches", sa.Integer(), nullable=False, server_default=sa.text("0")),
    )


def downgrade() -> None:
    for column in ("recovered_batches", "gradient_last", "gradient_first"):
        op.drop_column("metric", column)
