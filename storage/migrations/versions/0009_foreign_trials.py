"""What a study knew of other studies' trials when it was submitted."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

_NUMBER: sa.Double[float] = sa.Double()


def upgrade() -> None:
    op.create_table(
        "foreign_trial",
        sa.Column("study_id", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("source_study", sa.Text(), nullable=False),
        sa.Column("source_trial", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("architecture", sa.Text(), nullable=False),
        sa.Column("parametrization", sa.Text(), nullable=False),
        sa.Column("hyperparameters", sa.JSON(), nullable=False),
        sa.Column("drawn", sa.JSON(), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("parameters", sa.BigInteger(), nullable=False),
        sa.Column("dense_parameters", sa.BigInteger(), nullable=False),
        sa.Column("shape_key", sa.Text(), nullable=False),
        sa.Column("quality", _NUMBER),
        sa.Column("throughput", _NUMBER),
        sa.Column("throughput_ratio", _NUMBER),
        sa.Column("curve", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("study_id", "position", name="pk_foreign_trial"),
        sa.ForeignKeyConstraint(
            ["study_id"], ["study.id"], name="fk_foreign_trial_study", ondelete="CASCADE"
        ),
    )


def downgrade() -> None:
    op.drop_table("foreign_trial")
