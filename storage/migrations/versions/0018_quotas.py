"""What operators set for single tenants: limits, and a weight among those that want slots."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"

_NUMBER: sa.Double[float] = sa.Double()


def upgrade() -> None:
    op.create_table(
        "tenant_quota",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("weight", _NUMBER),
        sa.Column("limits", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", name="pk_tenant_quota"),
    )


def downgrade() -> None:
    op.drop_table("tenant_quota")
