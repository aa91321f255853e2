"""Learning curves have the loss on validation data, by which ties of the metric are broken."""

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"


def upgrade() -> None:
    op.add_column("metric", sa.Column("validation_loss", sa.Double()))


def downgrade() -> None:
    op.drop_column("metric", "validation_loss")
