"""Deleting a study: its rows, its files, and by an errand of the coordinator its Optuna study."""

import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

import optuna
from optuna.storages import BaseStorage

from search.optuna_tables import study_name
from storage.artifact_rows import ArtifactRows
from storage.artifacts import ArtifactStore
from storage.attempt_logs import AttemptLogs
from storage.attempts import Attempts
from storage.audit import Audit
from storage.engine import Database
from storage.errands import Errands
from storage.errors import Conflict
from storage.records import AttemptKind, ErrandKind, ErrandRecord
from storage.studies import Studies
from storage.trials import Trials
from storage.unnamed import remove_unnamed


@dataclass(frozen=True)
class Removed:
    """What is left to do for whoever deleted a study."""

    errand_id: str
    """The errand that is gone once Optuna's study is."""
    attempts: Sequence[str]
    """The ids of its attempts, by which their logs are named."""


def delete(database: Database, store: ArtifactStore, study_id: str) -> Removed:
    """Remove a study that has ended, and those of its bytes that nothing else names.

    Raises:
        NotFound: there is no such study.
        Conflict: it has not ended.
    """
    with database.write() as session:
        study = Studies(session).get(study_id)
        if not study.state.has_ended:
            raise Conflict(
                f"study {study_id!r} is {study.state.value}; cancel it first, and delete it when "
                "it has ended"
            )
        attempts = [
            attempt.id
            for kind in AttemptKind
            for attempt in Attempts(session).of_study(study_id, kind)
        ]
        rows = ArtifactRows(session)
        rows.lock_names()
        digests = sorted(
            {
                digest
                for trial in Trials(session).list(study_id)
                for digest in trial.artifacts.values()
            }
            | AttemptLogs(session).digests(study_id)
        )
        Studies(session).delete(study_id)
        for kind in (ErrandKind.ENQUEUE, ErrandKind.MEASURE):
            Errands(session).drop_of_study(study_id, kind)
        rows.drop_unused(digests)
        errand = ErrandRecord(
            id=secrets.token_hex(8),
            study_id=study_id,
            kind=ErrandKind.FORGET,
            payload={"study_name": study_name(study)},
            created_at=datetime.now(UTC),
        )
        Errands(session).add(errand)
        Audit(session).note("study.deleted", study_id, name=study.name)
    remove_unnamed(database, store, digests)
    return Removed(errand.id, attempts)


def forget_deleted(database: Database, storage: BaseStorage) -> None:
    """Delete Optuna's side of the studies that were deleted."""
    with database.read() as session:
        errands = Errands(session).open(ErrandKind.FORGET)
    for errand in errands:
        # Its coordinator may have died before it made one, or between these two steps.
        with suppress(KeyError):
            optuna.delete_study(study_name=str(errand.payload["study_name"]), storage=storage)
        with database.write() as session:
            Errands(session).drop(errand.id)
