"""Studies may know how trials of other tasks rank among each other."""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"

_NUMBER: sa.Double[float] = sa.Double()


def upgrade() -> None:
    op.add_column("foreign_trial", sa.Column("rank", _NUMBER))


def downgrade() -> None:
    # Without a rank they would count as trials of the study's own task.
    trial = sa.table("foreign_trial", sa.column("rank", _NUMBER))
    op.get_bind().execute(sa.delete(trial).where(trial.c.rank.is_not(None)))
    op.drop_column("foreign_trial", "rank")
