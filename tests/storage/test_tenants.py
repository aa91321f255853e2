import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from alembic import command as alembic
from sqlalchemy import (
    Engine,
    create_engine,
    delete,
    event,
    exists,
    func,
    make_url,
    select,
    text,
    update,
)
from sqlalchemy.orm import Session, aliased

from storage.account_records import ApiKeyRecord, BrowserSessionRecord, KeyState
from storage.accounts.audit import Audit
from storage.accounts.browser_sessions import BrowserSessions
from storage.accounts.keys import Keys, key_digest
from storage.endings import StudyCause
from storage.engine import Database
from storage.errors import IdempotencyConflict, NotFound
from storage.records import LOCAL, ArtifactRecord, CommandKind, CommandRecord, StudyState
from storage.repositories.artifact_rows import ArtifactRows
from storage.repositories.attempts import Attempts
from storage.repositories.commands import Commands
from storage.repositories.events import Events
from storage.repositories.measurements import Measurements
from storage.repositories.metrics import Metrics
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials
from storage.repositories.uploads import Datasets
from storage.schema import migration_config
from storage.tables import (
    ArtifactRow,
    AttemptRow,
    CommandRow,
    EventRow,
    MetricRow,
    StudyRow,
    Table,
    TrialArtifactRow,
    TrialRow,
)
from storage.tenants import ACROSS_TENANTS, run
from tests.storage.records import (
    START,
    add_dataset,
    add_model,
    add_study,
    add_trial,
    after,
    attempt,
    dataset,
    digest,
    measurement,
    metric,
    trial,
)

SHARED = {"artifact", "booking", "coordinator", "machine"}
"""What belongs to nobody."""


def fill(database: Database) -> str:
    """A study with something in every table that hangs on it."""
    with database.write() as session:
        study = add_study(session).id
        add_trial(session, study)
        Attempts(session).start(attempt(study), token_digest="t")
        Metrics(session).put(study, 0, metric(1))
        Measurements(session).add(study, measurement(study))
        Events(session).append(study, "study", {}, START)
        ArtifactRows(session).link(
            study, 0, "checkpoint", ArtifactRecord(sha256=digest(study), size=1, created_at=START)
        )
        Commands(session).add(command(study))
        Audit(session).note("study.submitted", study)
        add_dataset(session)
        add_model(session)
        Keys(session).add(key(f"key of {study}"), digest=key_digest(study))
        BrowserSessions(session).add(browser(study, key_id=f"key of {study}"))
    return study


def command(study: str) -> CommandRecord:
    return CommandRecord(
        id=f"command of {study}",
        study_id=study,
        kind=CommandKind.ENQUEUE,
        payload={},
        created_at=START,
    )


def key(key_id: str, **given: object) -> ApiKeyRecord:
    record = ApiKeyRecord(id=key_id, tenant=LOCAL, name="a key", scopes=("read",), created_at=START)
    return replace(record, **given)  # pyright: ignore[reportArgumentType]


def test_every_table_belongs_to_tenants_or_is_known_to_be_shared() -> None:
    for table in Table.metadata.sorted_tables:
        owned = {"tenant", "study_id"} & set(table.columns.keys())
        assert bool(owned) != (table.name in SHARED), table.name


def test_no_query_goes_round_the_mapped_classes() -> None:
    """Only statements on mapped classes are narrowed."""
    for path in (Path(__file__).parents[2] / "storage").glob("*.py"):
        named = re.findall(r"__table__", path.read_text())
        assert not named or path.name == "tenants.py", path


def test_whoever_asks_sees_rows_of_the_own_tenant_alone(database: Database) -> None:
    ours, theirs = database.of("ours"), database.of("theirs")
    fill(ours)
    for mapper in Table.registry.mappers:
        table = mapper.class_
        with theirs.read() as session:
            mine = session.query(table).count()
        with database.read() as session:
            whole = session.query(table).count()
        shared = str(mapper.local_table) in SHARED
        assert mine == (whole if shared else 0), table
    filled = {"trial", "attempt", "metric", "measurement", "event", "trial_artifact", "command"}
    with ours.read() as session:
        for mapper in Table.registry.mappers:
            if str(mapper.local_table) in filled:
                assert session.query(mapper.class_).count() == 1


CHANGES: list[Callable[[Session, str], object]] = [
    lambda session, study: Studies(session).get(study),
    lambda session, study: Studies(session).set_state(study, StudyState.FAILED, at=START),
    lambda session, study: Studies(session).set_ending(study, StudyCause.CANCELLED, "us"),
    lambda session, study: Studies(session).set_spec(study, {}),
    lambda session, study: Studies(session).delete(study),
    lambda session, study: Trials(session).get(study, 0),
    lambda session, study: Trials(session).add(trial(study, 1)),
    lambda session, study: Trials(session).start(study, 0, START),
    lambda session, study: Trials(session).set_epochs(study, 0, 3),
    lambda session, study: Events(session).append(study, "study", {}, START),
    lambda session, study: Metrics(session).put(study, 0, metric(2)),
    lambda session, study: Measurements(session).add(study, measurement(study)),
    lambda session, study: Attempts(session).start(attempt(study, 2), token_digest="u"),
    lambda session, study: Commands(session).answer(f"command of {study}", 1),
    lambda session, study: Keys(session).revoke(f"key of {study}", at=START),
    lambda session, study: ArtifactRows(session).link(
        study, 0, "report", ArtifactRecord(sha256=digest("r"), size=1, created_at=START)
    ),
]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_another_tenants_study_is_answered_as_one_that_does_not_exist(
    database: Database, change: Callable[[Session, str], object]
) -> None:
    study = fill(database.of("ours"))
    refusals: list[str] = []
    for named in (study, "nothing"):
        with pytest.raises(NotFound) as refusal, database.of("theirs").write() as session:
            change(session, named)
        refusals.append(str(refusal.value).replace(named, "ID"))
    assert refusals[0] == refusals[1]


STATEMENTS: list[Callable[[], Any]] = [
    lambda: select(StudyRow).where(StudyRow.id == "x"),
    lambda: select(func.count()).select_from(TrialRow),
    lambda: select(TrialRow.number).join(StudyRow, StudyRow.id == TrialRow.study_id),
    lambda: select(StudyRow.id, AttemptRow.slot).where(AttemptRow.study_id == StudyRow.id),
    lambda: select(StudyRow.id).where(exists().where(TrialRow.study_id == StudyRow.id)),
    lambda: select(select(func.max(EventRow.number)).scalar_subquery()),
    lambda: select(StudyRow.id).where(StudyRow.id.in_(select(CommandRow.study_id))),
    lambda: select(select(TrialRow.number).subquery()),
    lambda: select(aliased(TrialRow).number),
    lambda: select(TrialRow.number).union(select(MetricRow.number)),
    lambda: select(select(TrialRow.number).cte("some").c.number),
    lambda: select(func.coalesce(TrialRow.quality, 0.0)).order_by(TrialRow.number),
    lambda: update(StudyRow).values(last_event=select(func.max(EventRow.number)).scalar_subquery()),
    lambda: update(StudyRow).values(name="x").returning(StudyRow.id),
    lambda: (
        update(TrialRow)
        .where(TrialRow.study_id == select(AttemptRow.study_id).scalar_subquery())
        .values(detail="x")
    ),
    lambda: delete(ArtifactRow).where(
        exists().where(TrialArtifactRow.sha256 == ArtifactRow.sha256)
    ),
]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_statements_are_narrowed_as_by_the_conditions_of_all_tables(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Conditions are added of those tables alone that one names: others would change nothing."""

    def sent(statement: Any) -> list[tuple[str, Any]]:
        found: list[tuple[str, Any]] = []

        def note(*given: Any) -> None:
            found.append((given[2], given[3]))

        with database.of("ours").write() as session:
            engine = session.get_bind()
            event.listen(engine, "before_cursor_execute", note)
            session.execute(statement)
            event.remove(engine, "before_cursor_execute", note)
        return found

    chosen = [sent(statement()) for statement in STATEMENTS]
    monkeypatch.setattr("storage.tenants._named_by", lambda _statement: None)
    assert chosen == [sent(statement()) for statement in STATEMENTS]
    for [(text_sent, parameters)] in chosen:
        assert "tenant = ?" in text_sent
        assert "ours" in parameters


def test_what_is_added_belongs_to_the_sessions_tenant(database: Database) -> None:
    with database.of("ours").write() as session:
        assert add_study(session).tenant == "ours"
        added = Keys(session).add(key("k", tenant="theirs"), digest="d")
        assert added.tenant == "ours"
    with database.write() as session:
        assert add_study(session).tenant == LOCAL


def test_names_that_are_unique_are_so_within_a_tenant(database: Database) -> None:
    found: set[str] = set()
    for tenant in ("ours", "theirs"):
        for _ in range(2):
            with database.of(tenant).write() as session:
                made = add_study(session, idempotency_key="same", body_digest=tenant)
                data = add_dataset(session, dataset(fingerprint=digest("same files")))
                model = add_model(session, fingerprint=digest("same file"))
            found |= {made.id, data.id, model.id}
    assert len(found) == 6
    with pytest.raises(IdempotencyConflict), database.of("ours").write() as session:
        add_study(session, idempotency_key="same", body_digest="other")


def test_bytes_stay_for_the_other_tenant_who_has_them_too(database: Database) -> None:
    record = dataset()
    for tenant in ("ours", "theirs"):
        with database.of(tenant).write() as session:
            add_dataset(session, replace(record, id=tenant))
    with database.of("ours").write() as session:
        Datasets(session).delete("ours")
    with database.read() as session:
        assert set(record.digests) <= set(ArtifactRows(session).digests())
    with database.of("theirs").write() as session:
        Datasets(session).delete("theirs")
    with database.read() as session:
        assert ArtifactRows(session).digests() == []


def test_audit_events_name_the_key_and_stay_when_the_study_goes(database: Database) -> None:
    ours = database.of("ours", key_id="k1")
    with ours.write() as session:
        study = add_study(session).id
        Audit(session).note("study.submitted", study, name="a study")
        Studies(session).delete(study)
        Audit(session).note("study.deleted", study)
    with ours.read() as session:
        first = Audit(session).page(limit=1)
        second = Audit(session).page(limit=1, cursor=first.next_cursor)
    [deleted], [submitted] = first.items, second.items
    assert (deleted.action, submitted.action) == ("study.deleted", "study.submitted")
    assert (submitted.key_id, submitted.subject, submitted.detail) == (
        "k1",
        study,
        {"name": "a study"},
    )
    assert second.next_cursor is None
    with database.of("theirs").read() as session:
        assert Audit(session).page(limit=5).items == []


def test_a_revoked_key_is_found_no_more_and_stays_listed(database: Database) -> None:
    with database.write() as session:
        keys = Keys(session)
        assert not keys.any_valid(at=START)
        assert not keys.any()
        keys.add(key("k1"), digest=key_digest("text 1"))
        keys.add(key("k2", created_at=after(1)), digest=key_digest("text 2"))
        assert keys.find(digest=key_digest("text 1")) == key("k1")
        assert keys.find(digest=key_digest("text 3")) is None
        assert keys.valid_ones(["k1", "k2", "k3"], at=START) == {"k1", "k2"}
        assert keys.revoke("k1", at=after(2))
        assert not keys.revoke("k1", at=after(3))
        assert keys.get("k1").state_at(START) == KeyState.REVOKED
        assert keys.valid_ones(["k1", "k2"], at=START) == {"k2"}
        assert keys.get("k1").revoked_at == after(2)
        assert [found.id for found in keys.page(limit=5).items] == ["k2", "k1"]
        keys.touch("k2", at=after(9))
        assert keys.get("k2").last_used_at == after(9)
        keys.revoke("k2", at=after(9))
        assert not keys.any_valid(at=START)
        # A key that has ended counts as one: who comes without a key stays outside.
        assert keys.any()
    with pytest.raises(NotFound, match="nobody"), database.write() as session:
        Keys(session).revoke("nobody", at=START)


def test_a_key_opens_something_until_it_expires_and_is_rotated_once(database: Database) -> None:
    with database.write() as session:
        keys = Keys(session)
        keys.add(key("k1", expires_at=after(5)), digest=key_digest("text 1"))
        keys.add(key("k2"), digest=key_digest("text 2"))
        for at, valid in ((after(4), {"k1", "k2"}), (after(5), {"k2"})):
            assert keys.valid_ones(["k1", "k2"], at=at) == valid
        assert keys.get("k1").state_at(after(4)) == KeyState.VALID
        assert keys.get("k1").state_at(after(5)) == KeyState.EXPIRED
        assert keys.rotate("k2", successor="k1", ends=after(3))
        assert not keys.rotate("k2", successor="k3", ends=after(9))
        rotated = keys.get("k2")
        assert (rotated.successor, rotated.expires_at) == ("k1", after(3))
        assert keys.any_valid(at=after(4))
        assert not keys.any_valid(at=after(5))


def browser(text: str, **given: object) -> BrowserSessionRecord:
    record = BrowserSessionRecord(
        digest=key_digest(text),
        tenant=LOCAL,
        key_id="k1",
        created_at=START,
        last_used_at=START,
        expires_at=after(60),
    )
    return replace(record, **given)  # pyright: ignore[reportArgumentType]


def test_a_browsers_session_ends_by_time_by_its_key_and_by_hand(database: Database) -> None:
    with database.write() as session:
        keys, browsers = Keys(session), BrowserSessions(session)
        for key_id in ("k1", "k2"):
            keys.add(key(key_id, expires_at=after(30)), digest=key_digest(key_id))
        for text in ("a", "b", "c"):
            browsers.add(browser(text))
        browsers.add(browser("d", key_id="k2", expires_at=after(9)))
        digests = {text: key_digest(text) for text in "abcd"}
        assert browsers.find(digests["a"], at=after(1)) == (browser("a"), keys.get("k1"))
        assert browsers.valid_ones(digests.values(), at=after(8)) == set(digests.values())
        assert browsers.find(digests["d"], at=after(9)) is None
        assert browsers.find(digests["a"], at=after(30)) is None
        browsers.touch(digests["d"], at=after(8), expires_at=after(12))
        assert browsers.find(digests["d"], at=after(9)) is not None
        assert browsers.end(digests["a"])
        assert not browsers.end(digests["a"])
        assert browsers.count("k1", at=after(1)) == 2
        keys.revoke("k2", at=after(2))
        assert browsers.valid_ones(digests.values(), at=after(8)) == {digests["b"], digests["c"]}
        browsers.touch(digests["b"], at=after(3), expires_at=after(60))
        assert browsers.end_oldest("k1", keep=1) == 1
        assert browsers.find(digests["c"], at=after(4)) is None
        assert browsers.end_all("k1") == 1
        assert browsers.sweep(at=after(11)) == 0
        assert browsers.sweep(at=after(12)) == 1
        browsers.add(browser("e"))
        assert sorted(keys.remove_all()) == ["k1", "k2"]
        assert browsers.sweep(at=after(99)) == 0
        assert not keys.any()


def test_sessions_that_have_ended_are_swept_whoever_sweeps(database: Database) -> None:
    with database.of("ours").write() as session:
        Keys(session).add(key("k1"), digest=key_digest("k1"))
        BrowserSessions(session).add(browser("a"))
    with database.of("theirs").write() as session:
        assert not BrowserSessions(session).end(key_digest("a"))
        assert BrowserSessions(session).sweep(at=after(61)) == 1


def test_on_the_way_back_a_key_that_was_to_expire_is_revoked(
    database: Database, database_url: str
) -> None:
    with database.write() as session:
        Keys(session).add(key("ends", expires_at=after(5)), digest=key_digest("a"))
        Keys(session).add(key("stays"), digest=key_digest("b"))
    engine = _plain(database_url)
    with engine.begin() as connection:
        alembic.downgrade(migration_config(connection), "0016")
    engine.dispose()
    database.migrate()
    with database.read() as session:
        assert Keys(session).get("ends").revoked_at == after(5)
        assert Keys(session).get("stays").revoked_at is None


def test_a_query_may_see_all_tenants_only_where_it_says_so(database: Database) -> None:
    fill(database.of("ours"))
    count = select(func.count()).select_from(StudyRow)
    with database.of("theirs").read() as session:
        assert session.scalar(count) == 0
        assert session.scalar(count, execution_options=ACROSS_TENANTS) == 1


def _plain(database_url: str) -> Engine:
    url = make_url(database_url)
    if url.get_backend_name() == "postgresql":
        url = url.set(drivername="postgresql+psycopg")
    return create_engine(url)


def test_rows_of_before_are_the_local_tenants_and_nothing_is_lost_on_the_way(
    database: Database, database_url: str
) -> None:
    study = fill(database)
    with database.write() as session:
        Studies(session).delete(add_study(session, idempotency_key="gone").id)
        kept = add_study(session, idempotency_key="once", body_digest="b").id
    with database.of("theirs").write() as session:
        theirs = add_study(session, idempotency_key="once", body_digest="c").id
    engine = _plain(database_url)
    with engine.begin() as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("PRAGMA foreign_keys = OFF")
        alembic.downgrade(migration_config(connection), "0011")
    with engine.begin() as connection:
        for table in ("trial", "attempt", "metric", "measurement", "event", "trial_artifact"):
            assert connection.scalar(text(f"SELECT count(*) FROM {table}")) == 1, table
    engine.dispose()
    database.migrate()
    database.check()
    local = database.of(LOCAL)
    with local.read() as session:
        assert Studies(session).get(study).tenant == LOCAL
        assert Trials(session).get(study, 0).artifacts == {"checkpoint": digest(study)}
        assert Attempts(session).of_study(study, attempt(study).kind)
        assert Metrics(session).curve(study, 0) == [metric(1)]
        assert len(Events(session).after(study, 0, 9)) == 1
        again = Studies(session).find_idempotent("once", "b")
        assert again is not None
        assert again.id == kept
        # Whose it was is forgotten on the way back.
        assert Studies(session).get(theirs).tenant == LOCAL
    # Foreign keys are at work again.
    with pytest.raises(NotFound), database.write() as session:
        Metrics(session).put("nothing", 0, metric(1))
    with database.write() as session:
        Studies(session).delete(study)
    with database.read() as session:
        assert Metrics(session).curve(study, 0) == []


def test_a_statement_that_is_made_once_finds_each_tenants_own_rows(database: Database) -> None:
    """`run` narrows it once, with the tenant as a parameter."""
    ours, theirs = database.of("ours"), database.of("theirs")
    mine, other = fill(ours), fill(theirs)
    events = select(EventRow.study_id).where(EventRow.study_id.in_(select(StudyRow.id)))
    across = select(StudyRow.id).execution_options(**ACROSS_TENANTS)
    for _ in range(2):
        for whose, study in ((ours, mine), (theirs, other)):
            with whose.read() as session:
                assert set(run(session, events).scalars()) == {study}
                assert set(run(session, across).scalars()) == {mine, other}
        with database.read() as session:
            assert set(run(session, events).scalars()) == {mine, other}
