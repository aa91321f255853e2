"""Learning curves tell of the gradients of single updates, where a trial asks for them."""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"


def upgrade() -> None:
    op.add_column("metric", sa.Column("probes", sa.JSON()))


def downgrade() -> None:
    op.drop_column("metric", "probes")
