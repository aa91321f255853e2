"""Many trials written to Optuna's own tables at once.

Optuna's storage writes a trial with a statement for each of its parameters, values and attributes,
which costs as much as training a small model. Here all rows of a table go in one statement.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, final

from optuna.distributions import distribution_to_json
from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages import RDBStorage
from optuna.storages._rdb import models
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import Connection, Table, bindparam, func, insert, select, update

_TRIALS, _PARAMS, _VALUES, _USER_ATTRS, _SYSTEM_ATTRS = (
    model.__table__
    for model in (
        models.TrialModel,
        models.TrialParamModel,
        models.TrialValueModel,
        models.TrialUserAttributeModel,
        models.TrialSystemAttributeModel,
    )
)
_OPEN = (TrialState.RUNNING, TrialState.WAITING)


@final
class OptunaRows:
    """The rows of one study in Optuna's tables, which nobody else is to write meanwhile."""

    def __init__(self, storage: RDBStorage, study_id: int) -> None:
        """`study_id` is Optuna's."""
        self._engine = storage.engine
        self._study_id = study_id

    def write(
        self, new: Sequence[FrozenTrial], ended: Mapping[int, FrozenTrial], *, known: int
    ) -> list[int]:
        """Add trials behind the `known` ones that are there, and end others, named by Optuna's ids.

        An ended one's values and system attributes are added, and its user attributes that it had
        not when it was added have to be all that it has here.

        Returns:
            Optuna's ids of the new trials.

        Raises:
            UpdateFinishedTrialError: there are other trials than these, or one has ended already.
        """
        if not (new or ended):
            return []
        with self._engine.begin() as connection:
            # As Optuna does: adding a trial locks its study's row, so that numbers are unique.
            study = models.StudyModel.__table__
            of_ours = study.c.study_id == self._study_id
            connection.execute(update(study).where(of_ours).values(study_id=study.c.study_id))
            counted = select(func.count()).where(_TRIALS.c.study_id == self._study_id)
            there = connection.execute(counted).scalar_one()
            if there != known:
                raise UpdateFinishedTrialError(f"there are {there} trials, and {known} were ours")
            ids = [self._added(connection, known + n, trial) for n, trial in enumerate(new)]
            self._end(connection, ended)
            named = [*zip(ids, new, strict=True), *ended.items()]
            _insert(connection, _PARAMS, _params(zip(ids, new, strict=True)))
            _insert(connection, _VALUES, _values(named))
            _insert(connection, _USER_ATTRS, _attributes((i, t.user_attrs) for i, t in named))
            _insert(connection, _SYSTEM_ATTRS, _attributes((i, t.system_attrs) for i, t in named))
            return ids

    def _added(self, connection: Connection, number: int, trial: FrozenTrial) -> int:
        row = {
            "number": number,
            "study_id": self._study_id,
            "state": trial.state,
            "datetime_start": _utc(trial.datetime_start),
            "datetime_complete": _utc(trial.datetime_complete),
        }
        key = connection.execute(insert(_TRIALS), row).inserted_primary_key
        assert key is not None
        return int(key[0])

    def _end(self, connection: Connection, ended: Mapping[int, FrozenTrial]) -> None:
        statement = (
            update(_TRIALS)
            .where(_TRIALS.c.trial_id == bindparam("of"), _TRIALS.c.state.in_(_OPEN))
            .values(state=bindparam("to"), datetime_complete=bindparam("at"))
        )
        for trial_id, trial in ended.items():
            values = {"of": trial_id, "to": trial.state, "at": _utc(trial.datetime_complete)}
            if connection.execute(statement, values).rowcount != 1:
                raise UpdateFinishedTrialError(f"trial {trial_id} had ended already, or is gone")


def _insert(connection: Connection, table: Table, rows: Iterable[Mapping[str, Any]]) -> None:
    found = list(rows)
    if found:
        connection.execute(insert(table), found)


def _params(trials: Iterable[tuple[int, FrozenTrial]]) -> Iterable[Mapping[str, Any]]:
    for trial_id, trial in trials:
        for name, value in trial.params.items():
            distribution = trial.distributions[name]
            yield {
                "trial_id": trial_id,
                "param_name": name,
                "param_value": distribution.to_internal_repr(value),
                "distribution_json": distribution_to_json(distribution),
            }


def _values(trials: Iterable[tuple[int, FrozenTrial]]) -> Iterable[Mapping[str, Any]]:
    for trial_id, trial in trials:
        for objective, value in enumerate(trial.values or ()):
            stored, kind = models.TrialValueModel.value_to_stored_repr(value)
            yield {
                "trial_id": trial_id,
                "objective": objective,
                "value": stored,
                "value_type": kind,
            }


def _attributes(
    attributes: Iterable[tuple[int, Mapping[str, Any]]],
) -> Iterable[Mapping[str, Any]]:
    for trial_id, named in attributes:
        for key, value in named.items():
            yield {"trial_id": trial_id, "key": key, "value_json": json.dumps(value)}


def _utc(at: datetime | None) -> datetime | None:
    """As Optuna's tables have it: UTC, without saying so."""
    return None if at is None else at.astimezone(UTC).replace(tzinfo=None)
