"""Trials know the size of their file and how long a call takes; none of them did before."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"

_TABLES = ("trial", "foreign_trial")
_LATENCIES = ("latency_p50", "latency_p99")


def upgrade() -> None:
    for table in _TABLES:
        op.add_column(table, sa.Column("bytes", sa.BigInteger()))
    for table in (*_TABLES, "measurement"):
        for name in _LATENCIES:
            op.add_column(table, sa.Column(name, sa.Double()))


def downgrade() -> None:
    for table in (*_TABLES, "measurement"):
        for name in _LATENCIES:
            op.drop_column(table, name)
    for table in _TABLES:
        op.drop_column(table, "bytes")
