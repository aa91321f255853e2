"""Learning curves tell of single updates' gradients, and of how far test may be from training."""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"

_NUMBER: sa.Double[float] = sa.Double()


def upgrade() -> None:
    op.add_column("metric", sa.Column("generalization_term", _NUMBER))
    op.add_column("metric", sa.Column("probes", sa.JSON()))


def downgrade() -> None:
    for column in ("probes", "generalization_term"):
        op.drop_column("metric", column)
