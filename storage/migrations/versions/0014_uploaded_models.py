"""Trained networks that users upload."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.create_table(
        "uploaded_model",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False, server_default="local"),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("file_sha256", sa.Text(), nullable=False),
        sa.Column("file_size", sa.BigInteger(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("options", sa.JSON(), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("notes", sa.JSON(), nullable=False),
        sa.Column("parameters", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_uploaded_model"),
        sa.ForeignKeyConstraint(["sha256"], ["artifact.sha256"], name="fk_uploaded_model_artifact"),
        sa.UniqueConstraint("tenant", "fingerprint", name="uq_uploaded_model_tenant_fingerprint"),
        sa.Index("ix_uploaded_model_tenant_created_at_id", "tenant", "created_at", "id"),
    )


def downgrade() -> None:
    op.drop_table("uploaded_model")
