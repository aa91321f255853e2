"""Sums over everything are those of the rows; what runs where is found by coordinator and slot."""

from datetime import UTC, datetime, timedelta

import pytest

from storage.engine import Database
from storage.fleet.fleet_counts import AttemptTotal, FleetCounts
from storage.fleet.slot_use import AttemptOnSlot, SlotUse
from storage.records import ArtifactRecord, AttemptKind, AttemptState, StudyState, TrialState
from storage.repositories.artifact_rows import ArtifactRows
from storage.repositories.attempts import Attempts
from storage.repositories.measurements import Measurements
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials
from tests.storage.records import (
    START,
    add_study,
    add_trial,
    after,
    attempt,
    digest,
    measurement,
)


def test_an_empty_database_has_noughts_and_no_gaps(database: Database) -> None:
    with database.read() as session:
        counts = FleetCounts(session)
        assert counts.studies() == dict.fromkeys(StudyState, 0)
        assert counts.open_trials() == {TrialState.QUEUED: 0, TrialState.RUNNING: 0}
        assert set(counts.attempts().values()) == {AttemptTotal(0, 0.0)}
        assert (counts.running_seconds(), counts.measuring_seconds()) == (0.0, 0.0)
        assert counts.artifacts() == (0, 0)
        assert SlotUse(session).taken() == set()


def test_totals_count_what_is_there(database: Database) -> None:
    with database.write() as session:
        running, ended = add_study(session).id, add_study(session).id
        for number in range(3):
            add_trial(session, running, number)
        # One that a study left behind waits for nothing.
        add_trial(session, ended, 0)
        Studies(session).set_state(running, StudyState.RUNNING, at=START)
        Studies(session).set_state(ended, StudyState.FINISHED, at=START)
        Studies(session).add_running_seconds(running, 12.0)
        Studies(session).add_running_seconds(ended, 8.0)
        Trials(session).start(running, 0, START)
        first = attempt(running, slot_share=0.5)
        Attempts(session).start(first, token_digest="t")
        Attempts(session).end(first.id, state=AttemptState.LOST, at=after(10))
        Attempts(session).start(attempt(running, 2), token_digest="t")
        Measurements(session).add(running, measurement(running, seconds=1.5))
        Measurements(session).add(running, measurement(running, seconds=2.5))
        for name, size in (("a", 7), ("b", 2**40)):
            ArtifactRows(session).add(
                ArtifactRecord(sha256=digest(name), size=size, created_at=START)
            )
    with database.read() as session:
        counts = FleetCounts(session)
        studies = counts.studies()
        assert (studies[StudyState.RUNNING], studies[StudyState.FINISHED]) == (1, 1)
        assert counts.open_trials() == {TrialState.QUEUED: 2, TrialState.RUNNING: 1}
        attempts = counts.attempts()
        assert attempts[AttemptKind.TRAIN, AttemptState.LOST] == AttemptTotal(1, 5.0)
        assert attempts[AttemptKind.TRAIN, AttemptState.RUNNING] == AttemptTotal(1, 0.0)
        assert counts.running_seconds() == pytest.approx(20.0)
        assert counts.measuring_seconds() == pytest.approx(4.0)
        assert counts.artifacts() == (2, 2**40 + 7)


def test_what_runs_is_found_by_its_studys_coordinator_and_its_slot(database: Database) -> None:
    until = datetime.now(UTC) + timedelta(hours=1)
    with database.write() as session:
        ours, theirs = add_study(session).id, add_study(session).id
        for study, owner in ((ours, "ada"), (theirs, "bob")):
            Studies(session).claim(study, owner=owner, now=START, until=until)
            add_trial(session, study, 0)
            Attempts(session).start(attempt(study, slot="cpu-0"), token_digest=study)
        prepares = attempt(ours, kind=AttemptKind.PREPARE, trial=None, slot="cpu-1")
        Attempts(session).start(prepares, token_digest="p")
        Attempts(session).end(prepares.id, state=AttemptState.ENDED, at=after(1))
    with database.read() as session:
        use = SlotUse(session)
        assert use.taken() == {("ada", "cpu-0"), ("bob", "cpu-0")}
        assert use.attempts() == {
            ("ada", "cpu-0"): AttemptOnSlot(ours, 0, AttemptKind.TRAIN, START),
            ("bob", "cpu-0"): AttemptOnSlot(theirs, 0, AttemptKind.TRAIN, START),
        }
