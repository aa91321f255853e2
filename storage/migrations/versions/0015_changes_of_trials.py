"""Trials say when they last changed; what counts them needs no more than an index."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"

_COUNTED = ["study_id", "state", "dispatched", "origin", "told_at", "finished_at"]
_TRAINED = ["study_id", "kind", "state", "device_seconds"]
_MEASURED = ["study_id", "created_at", "id", "seconds"]


def upgrade() -> None:
    version = sa.Column("data_version", sa.Integer(), nullable=False, server_default=sa.text("0"))
    op.add_column("trial", version)
    op.create_index("ix_trial_study_id_data_version", "trial", ["study_id", "data_version"])
    op.drop_index("ix_trial_study_id_state", "trial")
    op.create_index("ix_trial_counts", "trial", _COUNTED)
    op.create_index("ix_attempt_device_seconds", "attempt", _TRAINED)
    op.create_index("ix_measurement_seconds", "measurement", _MEASURED)


def downgrade() -> None:
    op.drop_index("ix_measurement_seconds", "measurement")
    op.drop_index("ix_attempt_device_seconds", "attempt")
    op.drop_index("ix_trial_counts", "trial")
    op.create_index("ix_trial_study_id_state", "trial", ["study_id", "state"])
    op.drop_index("ix_trial_study_id_data_version", "trial")
    op.drop_column("trial", "data_version")
