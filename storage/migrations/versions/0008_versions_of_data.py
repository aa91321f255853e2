"""Studies count the changes of what their fronts and figures follow from."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    version = sa.Column("data_version", sa.Integer(), nullable=False, server_default=sa.text("0"))
    op.add_column("study", version)


def downgrade() -> None:
    op.drop_column("study", "data_version")
