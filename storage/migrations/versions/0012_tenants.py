"""API keys, what is done with them, and the tenants to whom everything belongs."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

_ONCE = {"study": "idempotency_key", "dataset": "fingerprint"}
"""Tables whose column is unique within a tenant, and was so within all."""


def upgrade() -> None:
    op.create_table(
        "api_key",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_used_at", sa.DateTime(timezone=True)),
        sa.Column("revoked_at", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("id", name="pk_api_key"),
        sa.UniqueConstraint("digest", name="uq_api_key_digest"),
        sa.Index("ix_api_key_tenant_created_at_id", "tenant", "created_at", "id"),
    )
    op.create_table(
        "audit_event",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("key_id", sa.Text()),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("detail", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit_event"),
        sa.Index("ix_audit_event_tenant_at_id", "tenant", "at", "id"),
    )
    op.add_column("errand", _tenant())
    for table, column in _ONCE.items():
        with op.batch_alter_table(table) as batch:
            batch.add_column(_tenant())
            batch.drop_constraint(f"uq_{table}_{column}", type_="unique")
            batch.create_unique_constraint(f"uq_{table}_tenant_{column}", ["tenant", column])
            batch.drop_index(f"ix_{table}_created_at_id")
            batch.create_index(f"ix_{table}_tenant_created_at_id", ["tenant", "created_at", "id"])


def downgrade() -> None:
    for table, column in _ONCE.items():
        # No tenant's name has a space, and neither has a value that the program itself made.
        op.execute(
            f"UPDATE {table} SET {column} = tenant || ' ' || {column} WHERE tenant <> 'local'"
        )
        with op.batch_alter_table(table) as batch:
            batch.drop_index(f"ix_{table}_tenant_created_at_id")
            batch.create_index(f"ix_{table}_created_at_id", ["created_at", "id"])
            batch.drop_constraint(f"uq_{table}_tenant_{column}", type_="unique")
            batch.create_unique_constraint(f"uq_{table}_{column}", [column])
            batch.drop_column("tenant")
    op.drop_column("errand", "tenant")
    op.drop_table("audit_event")
    op.drop_table("api_key")


def _tenant() -> sa.Column[str]:
    return sa.Column("tenant", sa.Text(), nullable=False, server_default="local")
