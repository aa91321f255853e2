"""Studies have labels: tags to find them by, and notes."""

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"


def upgrade() -> None:
    op.add_column("study", sa.Column("tags", sa.JSON(), nullable=False, server_default="[]"))
    op.add_column("study", sa.Column("notes", sa.Text(), nullable=False, server_default=""))


def downgrade() -> None:
    for name in ("notes", "tags"):
        op.drop_column("study", name)
