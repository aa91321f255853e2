"""Why things ended: a cause and a detail, and what became of the sentences of earlier versions."""

from collections.abc import Iterator

import pytest
from alembic import command
from sqlalchemy import Engine, create_engine, insert, make_url, text

from storage.endings import AttemptCause, Cause, StudyCause, TrialCause, sentence
from storage.engine import Database
from storage.fleet.bookings import Bookings
from storage.records import AttemptKind, AttemptState, BookingState, StudyState, TrialState
from storage.repositories.attempts import Attempts
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials
from storage.schema import migration_config
from storage.tables import BookingRow
from tests.storage.records import START, add_study, add_trial, attempt

STUDIES: dict[tuple[StudyState, str | None], StudyCause | None] = {
    (StudyState.QUEUED, "waits for a slot: resources.device 'cuda'"): StudyCause.NO_SLOT,
    (StudyState.PAUSED, "paused by the local user"): StudyCause.PAUSED,
    (StudyState.PAUSED, "disk full: 12 bytes are free: too few"): StudyCause.DISK_FULL,
    (StudyState.PAUSED, "store away: it does not answer"): StudyCause.STORE_AWAY,
    (StudyState.PAUSED, "quota stored_bytes is reached"): StudyCause.OVER_QUOTA,
    (StudyState.FINISHED, "budget: wall_seconds"): StudyCause.BUDGET,
    (StudyState.FINISHED, "grid_exhausted"): StudyCause.GRID_EXHAUSTED,
    (StudyState.FINISHED, "nothing_feasible"): StudyCause.NOTHING_FEASIBLE,
    (StudyState.CANCELLED, "cancelled by key ada"): StudyCause.CANCELLED,
    (StudyState.FAILED, "there is no such file: a.csv"): StudyCause.FAILED,
    (StudyState.FINISHED, None): None,
}
ENDINGS = {
    "budget: device_hours": StudyCause.BUDGET,
    "cancelled by key ada": StudyCause.CANCELLED,
    "failed: there is no such file: a.csv": StudyCause.FAILED,
}
TRIALS: dict[tuple[TrialState, str | None], TrialCause | None] = {
    (TrialState.COMPLETE, None): None,
    (TrialState.COMPLETE, "same configuration as trial 7"): TrialCause.DUPLICATE,
    (TrialState.STOPPED, "budget"): TrialCause.BUDGET,
    (TrialState.STOPPED, "pareto_gain at epoch 3: could add 0"): TrialCause.EARLY_STOPPING,
    (TrialState.INFEASIBLE, "memory: 51.5 GB predicted"): TrialCause.MEMORY,
    (TrialState.INFEASIBLE, "1200 parameters, allowed are 1000"): TrialCause.LIMIT,
    (TrialState.CANCELLED, "budget"): TrialCause.BUDGET,
    (TrialState.CANCELLED, "cancelled by the local user"): TrialCause.CANCELLED,
    (TrialState.CANCELLED, "failed: there is no such file"): TrialCause.STUDY_FAILED,
    (TrialState.FAILED, "throughput could not be measured: died"): TrialCause.UNMEASURED,
    (TrialState.FAILED, "exited with code 1"): TrialCause.FAILED,
    (TrialState.FAILED, "failed: Traceback: it broke"): TrialCause.FAILED,
}
ATTEMPTS: dict[tuple[AttemptState, str], AttemptCause] = {
    (AttemptState.ENDED, "complete"): AttemptCause.COMPLETE,
    (AttemptState.ENDED, "stopped: budget"): AttemptCause.STOPPED,
    (AttemptState.ENDED, "infeasible: the loss is NaN"): AttemptCause.INFEASIBLE,
    (AttemptState.ENDED, "failed: Traceback"): AttemptCause.FAILED,
    (AttemptState.ENDED, "data: there is no such file"): AttemptCause.DATA,
    (AttemptState.ENDED, "said what cannot be: epoch: 9"): AttemptCause.IMPOSSIBLE,
    (AttemptState.LOST, "exited with code 3"): AttemptCause.EXITED,
    (AttemptState.LOST, "crashed by signal 11 (Segmentation fault)"): AttemptCause.CRASHED,
    (AttemptState.LOST, "out of memory: the kernel killed it"): AttemptCause.OUT_OF_MEMORY,
    (AttemptState.LOST, "out of memory: the kernel ended it at its limit of 2 GB"): (
        AttemptCause.MEMORY_LIMIT
    ),
    (AttemptState.LOST, "died with its fork server"): AttemptCause.DIED,
    (AttemptState.LOST, "killed by signal 9 (Killed)"): AttemptCause.LOST,
    (AttemptState.LOST, "database away"): AttemptCause.LOST,
    (AttemptState.LOST, "the server was stopped"): AttemptCause.RESTARTED,
    (AttemptState.LOST, "the study was paused"): AttemptCause.PAUSED,
    (AttemptState.LOST, "cancelled by the local user"): AttemptCause.STUDY_ENDED,
}


@pytest.fixture
def plain_engine(database_url: str) -> Iterator[Engine]:
    url = make_url(database_url)
    if url.get_backend_name() == "postgresql":
        url = url.set(drivername="postgresql+psycopg")
    engine = create_engine(url)
    yield engine
    engine.dispose()


def fill(database: Database) -> None:
    """A study per state and ending, and in the first one a trial and an attempt per way to end."""
    with database.write() as session:
        for number in range(len(STUDIES) + len(ENDINGS)):
            add_study(session, id=f"s{number:02}")
        for number, (state, _) in enumerate(TRIALS):
            dispatched = state is not TrialState.INFEASIBLE
            add_trial(session, "s00", number, state=state, dispatched=dispatched)
        for number, (state, reason) in enumerate(ATTEMPTS):
            started = attempt("s00", number, id=f"a{number:02}", kind=AttemptKind.MEASURE)
            Attempts(session).start(started, token_digest=started.id)
            Attempts(session).end(started.id, state=state, at=START)
            values = {"machine_id": "m", "place": reason, "owner": "o", "booked_at": START}
            offered = insert(BookingRow).values(
                attempt_id=reason, state=BookingState.OFFERED, **values
            )
            session.execute(offered)


def write_sentences(engine: Engine) -> None:
    """What a program before version 0019 had written."""
    with engine.begin() as connection:
        for number, (state, reason) in enumerate(STUDIES):
            connection.execute(
                text("UPDATE study SET state = :state, state_reason = :reason WHERE id = :id"),
                {"state": state, "reason": reason, "id": f"s{number:02}"},
            )
        for number, reason in enumerate(ENDINGS, start=len(STUDIES)):
            connection.execute(
                text("UPDATE study SET ending = :reason WHERE id = :id"),
                {"reason": reason, "id": f"s{number:02}"},
            )
        for number, (_, reason) in enumerate(TRIALS):
            connection.execute(
                text("UPDATE trial SET reason = :reason WHERE number = :number"),
                {"reason": reason, "number": number},
            )
        for number, (_, reason) in enumerate(ATTEMPTS):
            connection.execute(
                text("UPDATE attempt SET reason = :reason WHERE id = :id"),
                {"reason": reason, "id": f"a{number:02}"},
            )
        connection.execute(text("UPDATE booking SET state = 'exited', detail = attempt_id"))


def sentences(engine: Engine) -> list[str | None]:
    """The same, as such a program would read it."""
    with engine.begin() as connection:
        found = [
            connection.scalars(text(query)).all()
            for query in (
                "SELECT state_reason FROM study ORDER BY id",
                "SELECT ending FROM study ORDER BY id",
                "SELECT reason FROM trial ORDER BY number",
                "SELECT reason FROM attempt ORDER BY id",
                "SELECT detail FROM booking ORDER BY attempt_id",
            )
        ]
    return [reason for part in found for reason in part]


def downgrade(engine: Engine) -> None:
    with engine.begin() as connection:
        command.downgrade(migration_config(connection), "0018")


def test_sentences_of_earlier_versions_become_causes_and_read_as_before(
    database: Database, plain_engine: Engine
) -> None:
    fill(database)
    downgrade(plain_engine)
    write_sentences(plain_engine)
    before = sentences(plain_engine)
    database.migrate()
    with database.read() as session:
        studies = sorted(
            Studies(session).with_ids([f"s{number:02}" for number in range(14)]),
            key=lambda study: study.id,
        )
        trials = Trials(session).list("s00")
        attempts = sorted(
            Attempts(session).of_study("s00", AttemptKind.MEASURE), key=lambda one: one.id
        )
        booked = {one.attempt_id: one for one in Bookings(session).all()}
    ended = studies[len(STUDIES) :]
    assert [one.state_cause for one in studies[: len(STUDIES)]] == [*STUDIES.values()]
    assert [(one.state, one.state_reason) for one in studies[: len(STUDIES)]] == [*STUDIES]
    assert {str(one.ending): one.ending_cause for one in ended} == ENDINGS
    assert [(one.state, one.reason) for one in trials] == [*TRIALS]
    assert [one.cause for one in trials] == [*TRIALS.values()]
    assert [(one.state, one.reason) for one in attempts] == [*ATTEMPTS]
    assert [one.cause for one in attempts] == [*ATTEMPTS.values()]
    for (_, reason), cause in ATTEMPTS.items():
        own = (AttemptCause.EXITED, AttemptCause.CRASHED, AttemptCause.DIED)
        assert (booked[reason].state, booked[reason].detail) == (BookingState.EXITED, reason)
        assert (booked[reason].cause in own) == (cause in own), reason
    downgrade(plain_engine)
    assert sentences(plain_engine) == before


@pytest.mark.parametrize("causes", [StudyCause, TrialCause, AttemptCause])
def test_every_cause_fits_its_column_and_reads_as_a_sentence(causes: type[Cause]) -> None:
    assert causes
    for cause in causes:
        assert causes(cause.value) is cause
        assert len(cause.value) <= 16
        assert str(sentence(cause, "the detail")).endswith("the detail")
    assert sentence(None, "the detail") == "the detail"
    assert sentence(None, None) is None
