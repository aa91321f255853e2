"""Browsers that logged in, and keys that expire or are replaced."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    op.add_column("api_key", sa.Column("expires_at", sa.DateTime(timezone=True)))
    op.add_column("api_key", sa.Column("successor", sa.Text()))
    op.create_table(
        "browser_session",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_browser_session"),
        sa.ForeignKeyConstraint(
            ["key_id"], ["api_key.id"], name="fk_browser_session_api_key", ondelete="CASCADE"
        ),
        sa.Index("ix_browser_session_key_id", "key_id"),
        sa.Index("ix_browser_session_expires_at", "expires_at"),
    )


def downgrade() -> None:
    op.drop_table("browser_session")
    # A program that knows no expiry would let such a key in for ever.
    op.execute(
        "UPDATE api_key SET revoked_at = expires_at "
        "WHERE revoked_at IS NULL AND expires_at IS NOT NULL"
    )
    with op.batch_alter_table("api_key") as batch:
        batch.drop_column("successor")
        batch.drop_column("expires_at")
