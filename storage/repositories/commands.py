"""Commands: what the API asks of the coordinator, which alone speaks to Optuna."""

from collections.abc import Mapping, Set
from typing import TypeAlias

from sqlalchemy import delete, insert, select, update
from sqlalchemy.orm import Session

from storage.errors import NotFound
from storage.mapping import reader
from storage.records import CommandKind, CommandRecord
from storage.tables import CommandRow
from storage.tenants import run

CommandRecords: TypeAlias = list[CommandRecord]


_record = reader(CommandRecord)
_ASKED = select(CommandRow.study_id, CommandRow.kind).where(CommandRow.trial.is_(None)).distinct()


class Commands:
    """The commands of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, record: CommandRecord) -> None:
        """Leave a command; its study need not be there (any more)."""
        self._session.execute(insert(CommandRow).values(**vars(record)))

    def find(self, command_id: str) -> CommandRecord | None:
        """One command, while it is there."""
        row = self._session.scalar(select(CommandRow).where(CommandRow.id == command_id))
        return None if row is None else _record(row)

    def open(
        self, kind: CommandKind, study_id: str | None = None, *, limit: int | None = None
    ) -> CommandRecords:
        """Commands of a kind that no trial came of yet, oldest first; of one study, or of all."""
        query = select(CommandRow).where(CommandRow.kind == kind, CommandRow.trial.is_(None))
        if study_id is not None:
            query = query.where(CommandRow.study_id == study_id)
        rows = self._session.scalars(
            query.order_by(CommandRow.created_at, CommandRow.id).limit(limit)
        )
        return [_record(row) for row in rows]

    def asked(self) -> Mapping[str, Set[CommandKind]]:
        """The kinds of open commands, by study."""
        rows = run(self._session, _ASKED)
        found: dict[str, set[CommandKind]] = {}
        for study_id, kind in rows:
            found.setdefault(study_id, set()).add(kind)
        return found

    def answer(self, command_id: str, trial: int) -> None:
        """Say which trial came of a command, which stays to tell it.

        Raises:
            NotFound: if there is no such command.
        """
        answered = self._session.scalar(
            update(CommandRow)
            .where(CommandRow.id == command_id)
            .values(trial=trial)
            .returning(CommandRow.id)
        )
        if answered is None:
            raise NotFound(f"there is no command {command_id!r}")

    def drop(self, command_id: str) -> None:
        """Take a command away; harmless when it is gone."""
        self._session.execute(delete(CommandRow).where(CommandRow.id == command_id))

    def drop_of_study(self, study_id: str, kind: CommandKind) -> None:
        """Take away all commands of a kind that a study has, answered ones included."""
        self._session.execute(
            delete(CommandRow).where(CommandRow.study_id == study_id, CommandRow.kind == kind)
        )
