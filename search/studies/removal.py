"""Deleting a study: its rows, its files, and by a command of the coordinator its Optuna study."""

import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

import optuna
from optuna.storages import BaseStorage

from search.optuna_tables import study_name
from storage.accounts.audit import Audit
from storage.blobs.artifacts import ArtifactStore
from storage.engine import Database
from storage.errors import Conflict
from storage.garbage_collect import garbage_collect
from storage.records import AttemptKind, CommandKind, CommandRecord
from storage.repositories.artifact_rows import ArtifactRows
from storage.repositories.attempt_logs import AttemptLogs
from storage.repositories.attempts import Attempts
from storage.repositories.commands import Commands
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials


@dataclass(frozen=True)
class Removed:
    """What is left to do after a study was deleted."""

    command_id: str
    """The command that is gone once Optuna's study is."""
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
        for kind in (CommandKind.ENQUEUE, CommandKind.MEASURE):
            Commands(session).drop_of_study(study_id, kind)
        rows.drop_unused(digests)
        command = CommandRecord(
            id=secrets.token_hex(8),
            study_id=study_id,
            kind=CommandKind.FORGET,
            payload={"study_name": study_name(study)},
            created_at=datetime.now(UTC),
        )
        Commands(session).add(command)
        Audit(session).note("study.deleted", study_id, name=study.name)
    garbage_collect(database, store, digests)
    return Removed(command.id, attempts)


def forget_deleted(database: Database, copies: Callable[[], BaseStorage] | None) -> None:
    """Delete the copies in Optuna's tables, where there are any, of studies that were deleted."""
    with database.read() as session:
        commands = Commands(session).open(CommandKind.FORGET)
    for command in commands:
        if copies is not None:
            # Its coordinator may have died before it made one, or between these two steps.
            with suppress(KeyError):
                name = str(command.payload["study_name"])
                optuna.delete_study(study_name=name, storage=copies())
        with database.write() as session:
            Commands(session).drop(command.id)
