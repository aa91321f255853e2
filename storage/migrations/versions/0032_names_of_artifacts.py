"""What names an artifact is found by an index, which each one that is deleted needs."""

from alembic import op

revision = "0032"
down_revision = "0031"

_TABLES = ("trial_artifact", "attempt_log")


def upgrade() -> None:
    for table in _TABLES:
        op.create_index(f"ix_{table}_sha256", table, ["sha256"])


def downgrade() -> None:
    for table in _TABLES:
        op.drop_index(f"ix_{table}_sha256", table)
