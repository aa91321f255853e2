"""Names of stored bytes: as many at once as a study has, and found by the bytes that they name."""

from typing import Any

import pytest
from sqlalchemy import event

from storage.engine import Database
from storage.records import ArtifactRecord
from storage.repositories.artifact_rows import ArtifactRows
from tests.storage.records import START, add_study, add_trial, digest

MANY = [f"{number:064x}" for number in range(70_000)]
"""More than PostgreSQL takes parameters in one statement."""


def test_a_study_may_name_more_bytes_than_a_statement_takes_values(database: Database) -> None:
    kept, dropped = MANY[3], MANY[-1]
    artifacts = {
        (number, "checkpoint"): ArtifactRecord(sha256=sha256, size=7, created_at=START)
        for number, sha256 in enumerate((kept, dropped))
    }
    with database.write() as session:
        study = add_study(session).id
        for number in range(2):
            add_trial(session, study, number)
        rows = ArtifactRows(session)
        rows.link_all(study, artifacts)
        assert rows.unnamed(MANY) == [one for one in MANY if one not in (kept, dropped)]
        assert rows.unlink(study, {1: ["checkpoint"]}) == [dropped]
        rows.drop_unused(MANY)
        assert rows.digests() == [kept]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_whether_bytes_are_named_is_found_without_reading_all_names(database: Database) -> None:
    """A site has hundreds of thousands of them, and every deleted artifact is looked for."""
    asked: list[tuple[str, Any]] = []

    def note(*given: Any) -> None:
        asked.append((given[2], given[3]))

    with database.write() as session:
        engine = session.get_bind()
        event.listen(engine, "before_cursor_execute", note)
        ArtifactRows(session).drop_unused([digest("gone")])
        event.remove(engine, "before_cursor_execute", note)
        ((statement, parameters),) = asked
        plan = session.connection().exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
        steps = [row.detail for row in plan]
    for table in ("trial_artifact", "attempt_log"):
        # Once for the condition, and once for the foreign key.
        searches = [step for step in steps if table in step.split()]
        assert len(searches) == 2
        assert all(f"ix_{table}_sha256" in step for step in searches), searches
