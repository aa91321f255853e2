"""One document may make several studies."""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"

_DOCUMENT = sa.JSON()


def upgrade() -> None:
    op.create_table(
        "collection",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False, server_default="local"),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("source", _DOCUMENT, nullable=False),
        sa.Column("budget", _DOCUMENT),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("idempotency_key", sa.Text()),
        sa.Column("body_digest", sa.Text()),
        sa.PrimaryKeyConstraint("id", name="pk_collection"),
        sa.UniqueConstraint(
            "tenant", "idempotency_key", name="uq_collection_tenant_idempotency_key"
        ),
        sa.Index("ix_collection_tenant_created_at_id", "tenant", "created_at", "id"),
    )
    op.create_table(
        "collection_study",
        sa.Column("collection_id", sa.Text(), nullable=False),
        sa.Column("study_id", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("row", sa.Text(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("collection_id", "study_id", name="pk_collection_study"),
        *(
            sa.ForeignKeyConstraint(
                [f"{table}_id"],
                [f"{table}.id"],
                name=f"fk_collection_study_{table}",
                ondelete="CASCADE",
            )
            for table in ("collection", "study")
        ),
        sa.Index("ix_collection_study_study_id", "study_id"),
    )


def downgrade() -> None:
    op.drop_table("collection_study")
    op.drop_table("collection")
