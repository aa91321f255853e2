"""Users' uploads."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_DOCUMENT = sa.JSON()


def upgrade() -> None:
    op.create_table(
        "dataset",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("suffix", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("test_sha256", sa.Text()),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("options", _DOCUMENT, nullable=False),
        sa.Column("facts", _DOCUMENT, nullable=False),
        sa.Column("preview", _DOCUMENT, nullable=False),
        sa.Column("container_sha256", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_dataset"),
        sa.UniqueConstraint("fingerprint", name="uq_dataset_fingerprint"),
        *(
            sa.ForeignKeyConstraint([name], ["artifact.sha256"], name=f"fk_dataset_{name}")
            for name in ("sha256", "test_sha256", "container_sha256")
        ),
        sa.Index("ix_dataset_created_at_id", "created_at", "id"),
    )


def downgrade() -> None:
    op.drop_table("dataset")
