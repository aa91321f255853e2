"""Optuna's tables as the dashboard sees them: one tenant's studies, for reading only."""

from collections.abc import Container
from typing import Any, NoReturn
from urllib.parse import quote

from optuna.storages import BaseStorage, RDBStorage
from optuna.study import StudyDirection
from optuna.study._frozen import FrozenStudy  # BaseStorage's own signatures need it
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import NullPool, make_url

from search.optuna_tables import study_id_in
from storage.engine import Database, with_driver
from storage.repositories.studies import Studies


class ReadOnly(Exception):
    """Something tried to write through the dashboard."""


class ReadOnlyStorage(BaseStorage):
    """An Optuna storage that passes reads on and raises `ReadOnly` on writes."""

    def __init__(self, storage: BaseStorage) -> None:
        self._storage = storage

    def get_study_id_from_name(self, study_name: str) -> int:
        """Read."""
        return self._storage.get_study_id_from_name(study_name)

    def get_study_name_from_id(self, study_id: int) -> str:
        """Read."""
        return self._storage.get_study_name_from_id(study_id)

    def get_study_directions(self, study_id: int) -> list[StudyDirection]:
        """Read."""
        return self._storage.get_study_directions(study_id)

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        """Read."""
        return self._storage.get_study_user_attrs(study_id)

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        """Read."""
        return self._storage.get_study_system_attrs(study_id)

    def get_all_studies(self) -> list[FrozenStudy]:
        """Read."""
        return self._storage.get_all_studies()

    def get_trial(self, trial_id: int) -> FrozenTrial:
        """Read."""
        return self._storage.get_trial(trial_id)

    def get_all_trials(
        self,
        study_id: int,
        deepcopy: bool = True,
        states: Container[TrialState] | None = None,
    ) -> list[FrozenTrial]:
        """Read."""
        return self._storage.get_all_trials(study_id, deepcopy=deepcopy, states=states)

    def remove_session(self) -> None:
        """Give this thread's connection back."""
        self._storage.remove_session()

    def _refuse(self, *_positional: object, **_named: object) -> NoReturn:
        raise ReadOnly("the dashboard only reads; change studies over the API")

    create_new_study = _refuse
    delete_study = _refuse
    set_study_user_attr = _refuse
    set_study_system_attr = _refuse
    create_new_trial = _refuse
    set_trial_param = _refuse
    set_trial_state_values = _refuse
    set_trial_intermediate_value = _refuse
    set_trial_user_attr = _refuse
    set_trial_system_attr = _refuse


class TenantStorage(ReadOnlyStorage):
    """A read-only storage in which there are no studies but one tenant's.

    Optuna knows of no tenants: whose a study is say our own tables, by the id in its name. All
    others are answered as studies that do not exist, which is a `KeyError`.
    """

    def __init__(self, storage: BaseStorage, database: Database, tenant: str) -> None:
        super().__init__(storage)
        self._database = database.of(tenant)

    def get_study_id_from_name(self, study_name: str) -> int:
        """Read."""
        self._find(study_name, study_name)
        return super().get_study_id_from_name(study_name)

    def get_study_name_from_id(self, study_id: int) -> str:
        """Read."""
        name = super().get_study_name_from_id(study_id)
        self._find(name, study_id)
        return name

    def get_study_directions(self, study_id: int) -> list[StudyDirection]:
        """Read."""
        self.get_study_name_from_id(study_id)
        return super().get_study_directions(study_id)

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        """Read."""
        self.get_study_name_from_id(study_id)
        return super().get_study_user_attrs(study_id)

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        """Read."""
        self.get_study_name_from_id(study_id)
        return super().get_study_system_attrs(study_id)

    def get_all_studies(self) -> list[FrozenStudy]:
        """Read."""
        with self._database.read() as session:
            ours = Studies(session).ids()
        studies = super().get_all_studies()
        return [study for study in studies if study_id_in(study.study_name) in ours]

    def get_trial(self, trial_id: int) -> FrozenTrial:
        """Read."""
        # A trial does not say of which study it is.
        for study in self.get_all_studies():
            for trial in super().get_all_trials(study._study_id, deepcopy=False):  # pyright: ignore[reportPrivateUsage]
                if trial._trial_id == trial_id:  # pyright: ignore[reportPrivateUsage]
                    return super().get_trial(trial_id)
        raise KeyError(f"No trial with trial-id {trial_id} found.")

    def get_all_trials(
        self,
        study_id: int,
        deepcopy: bool = True,
        states: Container[TrialState] | None = None,
    ) -> list[FrozenTrial]:
        """Read."""
        self.get_study_name_from_id(study_id)
        return super().get_all_trials(study_id, deepcopy=deepcopy, states=states)

    def _find(self, study_name: str, named: str | int) -> None:
        with self._database.read() as session:
            if not Studies(session).exists(study_id_in(study_name)):
                raise KeyError(f"No such study {named}.")


def open_read_only(url: str) -> ReadOnlyStorage:
    """Optuna's tables, which must be there already, over a connection that cannot write.

    Raises:
        StorageInternalError, SQLAlchemyError: the tables are not there (yet).
    """
    parsed = make_url(with_driver(url))
    if parsed.get_backend_name() == "sqlite":
        # A pool would go on reading a file that was replaced.
        parsed = parsed.set(
            database=f"file:{quote(parsed.database or '')}", query={"mode": "ro", "uri": "true"}
        )
        engine: dict[str, Any] = {"poolclass": NullPool, "connect_args": {"timeout": 30}}
    else:
        engine = {
            "pool_pre_ping": True,
            "connect_args": {"options": "-c default_transaction_read_only=on"},
        }
    text = parsed.render_as_string(hide_password=False)
    return ReadOnlyStorage(RDBStorage(text, engine_kwargs=engine, skip_table_creation=True))
