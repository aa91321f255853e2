"""What has to be true of a study and its store after whatever happened; read from the tables."""

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import optuna

from search.fronts.dominance import value_of
from search.fronts.pareto import objective_infos
from search.optuna_tables import open_storage, study_name
from search.studies.spec import StudySpec
from service.data_dir.locks import hold
from storage.blobs.folder import LocalArtifactStore
from storage.endings import AttemptCause
from storage.engine import Database
from storage.errors import ArtifactDamaged
from storage.fleet.bookings import Bookings
from storage.fleet.machines import Machines
from storage.records import AttemptKind, AttemptState, StudyRecord, TrialRecord, TrialState
from storage.repositories.artifact_rows import ArtifactRows
from storage.repositories.attempt_logs import AttemptLogs
from storage.repositories.attempts import Attempts
from storage.repositories.events import Events
from storage.repositories.exchanges import Exchanges
from storage.repositories.metrics import Metrics
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials

_OPTUNA = {
    TrialState.COMPLETE: optuna.trial.TrialState.COMPLETE,
    TrialState.STOPPED: optuna.trial.TrialState.PRUNED,
    TrialState.INFEASIBLE: optuna.trial.TrialState.PRUNED,
    TrialState.FAILED: optuna.trial.TrialState.FAIL,
    TrialState.CANCELLED: optuna.trial.TrialState.FAIL,
}


def audit_study(
    database: Database, optuna_url: str, study_id: str, front: Mapping[str, Any]
) -> Counter[str]:
    """Prove that every trial ended once and was told once, and that `front` is the front."""
    with database.read() as session:
        study = Studies(session).get(study_id)
        trials = Trials(session).list(study_id)
    spec = StudySpec.model_validate(study.spec)
    assert [trial.number for trial in trials] == list(range(len(trials))), "a trial is lost"
    assert all(trial.state.has_ended for trial in trials), "a trial has not ended"
    if spec.sampler.rungs(spec.budget.epochs):
        _audit_pauses(database, study, trials, spec)
    else:
        dispatched = sum(trial.dispatched for trial in trials)
        assert dispatched == spec.budget.trials, f"{dispatched} of {spec.budget.trials} trials ran"
    _audit_events(database, study, trials)
    _audit_attempts(database, trials)
    _audit_losses(database, study)
    _audit_exchanges(database, study, trials)
    storage = open_storage(optuna_url)
    _audit_optuna(storage, study, trials, spec)
    storage.remove_session()
    storage.engine.dispose()
    assert sorted(point["trial"] for point in front["points"]) == _front(trials, spec)
    return Counter(trial.state.value for trial in trials)


def _audit_events(database: Database, study: StudyRecord, trials: Sequence[TrialRecord]) -> None:
    with database.read() as session:
        events = Events(session).after(study.id, 0, limit=10_000_000)
    assert [event.number for event in events] == list(range(1, study.last_event + 1))
    ends = Counter(
        event.payload["trial"]
        for event in events
        if event.kind == "trial" and TrialState(str(event.payload["state"])).has_ended
    )
    assert ends == Counter(trial.number for trial in trials), "an end was told twice, or never"


def _audit_pauses(
    database: Database, study: StudyRecord, trials: Sequence[TrialRecord], spec: StudySpec
) -> None:
    """The budget was spent, and each trial paused and went on in turn, with what it had learned."""
    epochs = spec.budget.epochs
    spent = sum(trial.epochs_trained for trial in trials)
    # What dies after it has stored where it is goes on to the next rung, beyond what was planned.
    assert (spec.budget.trials - 1) * epochs <= spent <= (spec.budget.trials + 4) * epochs, spent
    with database.read() as session:
        events = Events(session).after(study.id, 0, limit=10_000_000)
    for trial in trials:
        told = [e for e in events if e.payload.get("trial") == trial.number]
        kinds = [e.kind for e in told if e.kind in ("paused", "thawed")]
        assert kinds == (["paused", "thawed"] * len(kinds))[: len(kinds)], (trial.number, kinds)
        assert trial.state != TrialState.STOPPED or "checkpoint" in trial.artifacts, trial.number


def _audit_losses(database: Database, study: StudyRecord) -> None:
    """Each attempt ended, of whatever kind it was, and each that was lost was told as lost once."""
    with database.read() as session:
        assert not Attempts(session).running(study.id), "an attempt has not ended"
        attempts = [
            row for kind in AttemptKind for row in Attempts(session).of_study(study.id, kind)
        ]
        events = Events(session).after(study.id, 0, limit=10_000_000)
    lost = Counter[tuple[object, ...]](
        (row.kind.value, row.trial, row.number)
        for row in attempts
        if row.state == AttemptState.LOST
    )
    told = Counter[tuple[object, ...]](
        (str(one.payload["kind"]), one.payload["trial"], one.payload["attempt"])
        for one in events
        if one.kind == "attempt_lost"
    )
    assert told == lost, f"told {told - lost} that was not lost; not told {lost - told}"


def audit_fleet(database: Database) -> None:
    """Prove that no machine is counted on any more, and that no place of one is taken."""
    with database.read() as session:
        machines, bookings = Machines(session).list(), Bookings(session).all()
    assert not machines, f"machines that have left are still known: {machines}"
    assert not bookings, f"places are still taken: {bookings}"


def audit_folders(*data_dirs: Path) -> None:
    """Prove that nothing lies there which only a running process needs, and no lock is held."""
    for data_dir in data_dirs:
        left = [
            path
            for path in data_dir.rglob("*")
            if path.is_socket()
            or path.name in ("server.json", "worker.boot")
            or path.suffix in (".tmp", ".part")
        ]
        assert not left, f"left over: {left}"
        for lock in data_dir.rglob("*.lock"):
            with hold(lock):
                pass


def _audit_attempts(database: Database, trials: Sequence[TrialRecord]) -> None:
    for trial in trials:
        with database.read() as session:
            attempts = Attempts(session).of_trial(trial.study_id, trial.number, AttemptKind.TRAIN)
            curve = Metrics(session).curve(trial.study_id, trial.number)
        assert sorted(row.number for row in attempts) == list(range(1, len(attempts) + 1))
        assert all(row.state != AttemptState.RUNNING for row in attempts), "a lease is held"
        ended_it = [row for row in attempts if row.cause is AttemptCause.COMPLETE]
        assert len(ended_it) == (trial.state == TrialState.COMPLETE), (trial.number, attempts)
        if trial.state == TrialState.COMPLETE:
            assert [row.epoch for row in curve] == list(range(1, trial.epochs_trained + 1))


def _audit_exchanges(database: Database, study: StudyRecord, trials: Sequence[TrialRecord]) -> None:
    with database.read() as session:
        exchanges = Exchanges(session).list(study.id)
    assert [row.position for row in exchanges] == list(range(1, len(exchanges) + 1))
    numbers = [trial.number for trial in trials]
    assert [row.trial for row in exchanges if row.kind == "ask"] == numbers
    assert sorted(row.trial for row in exchanges if row.kind == "tell") == numbers
    assert all(trial.told_at is not None for trial in trials)
    asked: set[int] = set()
    for row in exchanges:
        assert row.kind == "ask" or row.trial in asked, "told before it was asked"
        asked.add(row.trial)


def _audit_optuna(
    storage: optuna.storages.BaseStorage,
    study: StudyRecord,
    trials: Sequence[TrialRecord],
    spec: StudySpec,
) -> None:
    theirs = optuna.load_study(study_name=study_name(study), storage=storage).trials
    assert [trial.number for trial in theirs] == [trial.number for trial in trials]
    infos = objective_infos(spec.task, spec.objectives)
    for mine, other in zip(trials, theirs, strict=True):
        assert other.state == _OPTUNA[mine.state], (mine, other)
        assert other.params == mine.drawn
        if mine.state == TrialState.COMPLETE:
            assert other.values == [value_of(mine, info.name) for info in infos]


def _front(trials: Sequence[TrialRecord], spec: StudySpec) -> list[int]:
    """The front by its definition: whoever is dominated by none, each compared with all."""
    points: dict[int, tuple[float, ...]] = {}
    for trial in trials:
        if trial.state != TrialState.COMPLETE:
            continue
        infos = objective_infos(spec.task, spec.objectives)
        values = [value_of(trial, info.name) for info in infos]
        if None not in values:
            points[trial.number] = tuple(
                float(value or 0.0) * (1 if info.direction == "minimize" else -1)
                for info, value in zip(infos, values, strict=True)
            )
    return [
        number
        for number, mine in points.items()
        if not any(
            other != mine and all(b <= a for a, b in zip(mine, other, strict=True))
            for other in points.values()
        )
    ]


def bytes_without_a_row(database: Database, folder: Path) -> set[str]:
    """Digests of stored bytes that no row names: of a moment, for bytes come before their row."""
    with database.read() as session:
        rows = set(ArtifactRows(session).digests())
    return {path.name for path in folder.glob("*/*")} - rows


def audit_store(
    database: Database,
    folder: Path,
    damaged: Set[str] = frozenset(),
    *,
    was_rolled_back: bool = False,
) -> int:
    """Prove that rows and bytes name each other; returns how many artifacts there are.

    Each has its digest, but for those that were `damaged` and not written again, which are refused.

    Whole bytes that no row names are what a worker leaves that was killed between the two: they are
    for the sweep, which has to have run.

    A database that was rolled back may name the checkpoint with which a trial was paused, and which
    another one had replaced by then. So that of a trial that was let go afterwards may be gone.
    """
    store = LocalArtifactStore(folder)
    named, of_stopped = set[str](), set[str]()
    with database.read() as session:
        studies = Studies(session).page(limit=1000).items
        for study in studies:
            for trial in Trials(session).list(study.id):
                artifacts = ArtifactRows(session).of_trial(study.id, trial.number)
                assert {role: row.sha256 for role, row in artifacts.items()} == trial.artifacts
                named |= set(trial.artifacts.values())
                if was_rolled_back and trial.state == TrialState.STOPPED:
                    of_stopped |= set(trial.artifacts.values())
                if trial.state == TrialState.COMPLETE:
                    assert {"checkpoint", "report"} <= set(trial.artifacts), trial.number
                assert "resume" not in trial.artifacts, f"trial {trial.number} needs it no more"
            named |= AttemptLogs(session).digests(study.id)
        rows = set(ArtifactRows(session).digests())
    files = {path.name for path in folder.glob("*/*")}
    assert named == rows, f"a row names nothing, or nothing names a row: {sorted(named ^ rows)}"
    assert not files - rows, f"bytes without a row: {sorted(files - rows)}"
    gone = rows - files - of_stopped
    assert not gone, f"a row without bytes: {sorted(gone)}"
    for digest in files:
        try:
            store.open_reader(digest).close()
        except ArtifactDamaged:
            assert digest in damaged, f"{digest} has other bytes, and nobody damaged it"
    return len(files)
