"""What is still to be sent to the users' own servers."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.create_table(
        "webhook_delivery",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("study_id", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True)),
        sa.Column("delivered_at", sa.DateTime(timezone=True)),
        sa.Column("reason", sa.Text()),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_webhook_delivery"),
        sa.ForeignKeyConstraint(
            ["study_id"], ["study.id"], name="fk_webhook_delivery_study", ondelete="CASCADE"
        ),
        sa.Index("ix_webhook_delivery_study_id", "study_id"),
        sa.Index("ix_webhook_delivery_due_at", "due_at"),
    )


def downgrade() -> None:
    op.drop_table("webhook_delivery")
