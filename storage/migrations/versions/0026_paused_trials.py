"""Trials may be paused: what each was chosen to train, and why it does not go on."""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    for name in ("stretch", "pausing"):
        op.add_column("trial", sa.Column(name, sa.JSON()))


def downgrade() -> None:
    # What was paused is run on to its end from where it is stored.
    trial = sa.table("trial", sa.column("state", sa.Text()))
    op.get_bind().execute(sa.update(trial).where(trial.c.state == "paused").values(state="running"))
    for name in ("pausing", "stretch"):
        op.drop_column("trial", name)
