"""Counts in studies' documents have largest values now, and stored ones stay within them.

Before, a count could be as large as anybody liked; beyond these values it changed nothing.
"""

from typing import cast

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"

_LARGEST = {
    ("limits", "parameters"): 10**18,
    ("limits", "multiply_adds"): 10**18,
    ("limits", "memory_bytes"): 10**18,
    ("budget", "total_epochs"): 10**12,
    ("sampler", "startup_trials"): 10**6,
    ("sampler", "sampler", "startup_trials"): 10**6,
    ("early_stopping", "eta"): 10**3,
    ("early_stopping", "spacing"): 10**5,
    ("early_stopping", "startup_trials"): 10**6,
    ("early_stopping", "startup_better"): 10**6,
    ("early_stopping", "threshold", "window"): 10**6,
    ("throughput", "sequence_length"): 10**6,
    ("task", "longest"): 10**6,
    ("task", "steps"): 10**6,
    ("task", "depth"): 10**6,
}


def upgrade() -> None:
    study = sa.table("study", sa.column("id", sa.Text()), sa.column("spec", sa.JSON()))
    connection = op.get_bind()
    for study_id, spec in connection.execute(sa.select(study.c.id, study.c.spec)).all():
        if _lowered(spec):
            connection.execute(sa.update(study).where(study.c.id == study_id).values(spec=spec))


def downgrade() -> None:
    """Smaller counts are good for older programs, too."""


def _lowered(spec: object) -> bool:
    """Whether counts of a document were above their largest values, which they have now."""
    found = False
    for (*path, name), largest in _LARGEST.items():
        section = _object(spec)
        for part in path:
            section = _object(section.get(part))
        count = section.get(name)
        if isinstance(count, int) and count > largest:
            section[name] = largest
            found = True
    return found


def _object(node: object) -> dict[str, object]:
    return cast("dict[str, object]", node) if isinstance(node, dict) else {}
