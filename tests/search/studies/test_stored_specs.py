"""Studies as programs of earlier versions stored them, when documents had fewer bounds."""

from typing import Any

import pytest
from alembic import command
from pydantic import ValidationError
from sqlalchemy import update

from search.studies.spec import StudySpec
from storage.engine import Database
from storage.repositories.studies import Studies
from storage.schema import migration_config
from storage.tables.study import StudyRow
from tests.storage.records import add_study

NO_LIMIT = 10**18 + 1
"""What somebody writes who wants no limit."""

SPECS: dict[str, dict[str, Any]] = {
    "costs": {
        "task": {"kind": "digits"},
        "limits": dict.fromkeys(("parameters", "multiply_adds", "memory_bytes"), NO_LIMIT),
        "budget": {"trials": 7, "total_epochs": NO_LIMIT},
        "throughput": {"sequence_length": NO_LIMIT},
        "sampler": {"kind": "known_cost", "startup_trials": NO_LIMIT},
        "early_stopping": {
            "kind": "pareto_gain",
            **dict.fromkeys(("spacing", "startup_trials", "startup_better"), NO_LIMIT),
            "threshold": {"kind": "rate", "window": NO_LIMIT},
        },
    },
    "branches": {
        "task": {"kind": "language", "corpus": "ptb", "batching": "sentences", "longest": NO_LIMIT},
        "sampler": {
            "kind": "branches",
            "startup_trials": NO_LIMIT,
            "sampler": {"kind": "gp", "startup_trials": NO_LIMIT},
        },
        "early_stopping": {"kind": "mo_asha", "eta": NO_LIMIT},
    },
    "labels": {"task": {"kind": "multilabel", "name": "yeast", "steps": NO_LIMIT}},
    "series": {"task": {"kind": "ucr", "name": "Wafer", "depth": NO_LIMIT}},
    "usual": {"task": {"kind": "digits"}, "early_stopping": None, "budget": {"total_epochs": 9}},
}


def test_counts_without_a_bound_are_brought_within_todays(database: Database) -> None:
    with database.write() as session:
        for name, spec in SPECS.items():
            add_study(session, id=name)
            session.execute(update(StudyRow).where(StudyRow.id == name).values(spec=spec))
        command.downgrade(migration_config(session.connection()), "0019")
    database.migrate()
    for name, spec in SPECS.items():
        with database.read() as session:
            stored = Studies(session).get(name).spec
        if name == "usual":
            assert stored == spec
        else:
            with pytest.raises(ValidationError, match="less than or equal"):
                StudySpec.model_validate(spec)
        StudySpec.model_validate(stored)
        assert str(stored).count(":") == str(spec).count(":")
