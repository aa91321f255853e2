"""One tenant's studies as Optuna's dashboard reads them: our own rows, which it cannot change.

Optuna numbers studies and trials. A study's number follows from its id, so that an address in a
browser holds for as long as the study is there, whichever process answers.
"""

import copy
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NoReturn, TypeVar

from optuna.storages import BaseStorage
from optuna.study import StudyDirection
from optuna.study._frozen import FrozenStudy  # BaseStorage's own signatures need it
from optuna.trial import FrozenTrial, TrialState

from search.fronts import Figures
from search.optuna_tables import study_id_in, study_title
from search.sampling.shown_studies import ShownStudy
from service.api.paths import dashboard_number
from storage.engine import Database
from storage.errors import NotFound
from storage.repositories.studies import Studies

_T = TypeVar("_T")

_TRIALS_OF_A_STUDY: Final = 1 << 20
"""A study's number times this is the id of its first trial; browsers keep integers to 2^53."""
_METRIC_NAMES: Final = "study:metric_names"
_BESIDE: Final = "dashboard:"


class ReadOnly(Exception):
    """Something tried to write through the dashboard."""


class StudiesOfTenant(BaseStorage):
    """An Optuna storage of the studies of one tenant; it raises `ReadOnly` on writes.

    All others are answered as studies that do not exist, which is a `KeyError`.
    """

    def __init__(self, database: Database, tenant: str) -> None:
        self._database = database.of(tenant)
        self._figures = Figures()
        self._known: dict[str, ShownStudy] = {}

    def get_study_id_from_name(self, study_name: str) -> int:
        """Read."""
        study_id = study_id_in(study_name)
        if study_id not in self._names():
            raise KeyError(f"No such study {study_name}.")
        return dashboard_number(study_id)

    def get_study_name_from_id(self, study_id: int) -> str:
        """Read."""
        for found, name in self._names().items():
            if dashboard_number(found) == study_id:
                return study_title(name, found)
        raise KeyError(f"No such study {study_id}.")

    def get_study_directions(self, study_id: int) -> list[StudyDirection]:
        """Read."""
        return _directions(self._study(study_id))

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        """Read."""
        self._study(study_id)
        return {}

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        """Read."""
        study = self._study(study_id)
        return {**_metric_names(study), **self._found(study.beside_trials)}

    def get_all_studies(self) -> list[FrozenStudy]:
        """Read."""
        names = self._names()
        for gone in self._known.keys() - names.keys():
            self._known.pop(gone, None)
        found: list[FrozenStudy] = []
        for study_id, name in names.items():
            try:
                study = self._shown(study_id)
            except KeyError:  # it was deleted meanwhile
                continue
            found.append(
                FrozenStudy(
                    study_name=study_title(name, study_id),
                    direction=None,
                    directions=_directions(study),
                    user_attrs={},
                    system_attrs=_Attributes(
                        _metric_names(study), partial(self._found, study.beside_trials)
                    ),
                    study_id=dashboard_number(study_id),
                )
            )
        return found

    def get_trial(self, trial_id: int) -> FrozenTrial:
        """Read."""
        number = trial_id // _TRIALS_OF_A_STUDY
        for trial in self._trials(number) if number else ():
            if trial._trial_id == trial_id:  # pyright: ignore[reportPrivateUsage]
                return trial
        raise KeyError(f"No trial with trial-id {trial_id} found.")

    def get_all_trials(
        self,
        study_id: int,
        deepcopy: bool = True,
        states: Container[TrialState] | None = None,
    ) -> list[FrozenTrial]:
        """Read."""
        trials = [
            trial for trial in self._trials(study_id) if states is None or trial.state in states
        ]
        return copy.deepcopy(trials) if deepcopy else trials

    def _trials(self, number: int) -> Sequence[FrozenTrial]:
        return self._found(self._study(number).trials)

    def _names(self) -> Mapping[str, str]:
        with self._database.read() as session:
            return Studies(session).names()

    def _study(self, number: int) -> ShownStudy:
        for study_id in self._names():
            if dashboard_number(study_id) == number:
                return self._shown(study_id)
        raise KeyError(f"No such study {number}.")

    def _shown(self, study_id: str) -> ShownStudy:
        known = self._known.get(study_id)
        if known is None:
            first = dashboard_number(study_id) * _TRIALS_OF_A_STUDY
            known = self._found(
                lambda: ShownStudy(self._database, study_id, self._figures, first_trial_id=first)
            )
            # Of two threads that make it, all go by the first one's.
            known = self._known.setdefault(study_id, known)
        return known

    def _found(self, read: Callable[[], _T]) -> _T:
        try:
            return read()
        except NotFound as error:
            raise KeyError(str(error)) from error

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


class _Attributes(dict[str, Any]):
    """System attributes of a study, of which the note and the plots are made when they are read.

    A list of studies reads none of those.
    """

    def __init__(self, known: Mapping[str, Any], beside: Callable[[], Mapping[str, Any]]) -> None:
        super().__init__(known)
        self._beside: Callable[[], Mapping[str, Any]] | None = beside

    def get(self, key: str, default: Any = None, /) -> Any:
        """As of a dictionary that has them all."""
        if key.startswith(_BESIDE):
            self._read()
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self._read()
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self._read()
        return super().__contains__(key)

    def __iter__(self) -> Iterator[str]:
        self._read()
        return super().__iter__()

    def items(self) -> Any:
        """As of a dictionary that has them all."""
        self._read()
        return super().items()

    def _read(self) -> None:
        if self._beside is not None:
            beside, self._beside = self._beside, None
            self.update(beside())


def _directions(study: ShownStudy) -> list[StudyDirection]:
    return [StudyDirection[info.direction.upper()] for info in study.objectives]


def _metric_names(study: ShownStudy) -> dict[str, Any]:
    return {_METRIC_NAMES: [info.metric for info in study.objectives]}
