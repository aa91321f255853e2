"""Studies and trials as Optuna's dashboard sees them: made of our rows, kept by version."""

import threading
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, final

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial

from search.documents.objectives import OBJECTIVE_KINDS
from search.fronts import Figures, ObjectiveInfo, objective_infos
from search.samplers import CONSTRAINTS, STATES, distribution_of
from search.sampling.optuna_dashboard import shown_beside_trials
from search.sampling.trial_attributes import configuration_notes, outcome_notes
from search.studies import StudySpec, space_of
from storage.engine import Database
from storage.records import TrialState
from storage.repositories.studies import Studies
from storage.repositories.trial_summaries import ShownTrial
from storage.repositories.trials import Trials


@final
class ShownStudy:
    """One study; threads may share it."""

    def __init__(
        self, database: Database, study_id: str, figures: Figures, *, first_trial_id: int
    ) -> None:
        """`first_trial_id` is what Optuna gets as the id of trial 0; the others follow.

        Raises:
            NotFound: there is no such study.
        """
        self._database = database
        self._study_id = study_id
        self._figures = figures
        self._first_trial_id = first_trial_id
        with database.read() as session:
            # A budget that grows changes nothing of what is kept here.
            self._spec = StudySpec.model_validate(Studies(session).get(study_id).spec)
        self.objectives: Sequence[ObjectiveInfo] = objective_infos(
            self._spec.task, self._spec.objectives
        )
        self._lock = threading.Lock()
        self._distributions: Mapping[str, BaseDistribution] | None = None
        self._version = -1
        self._trials: dict[int, FrozenTrial] = {}
        self._beside: tuple[int, dict[str, Any]] = (-1, {})

    def beside_trials(self) -> dict[str, Any]:
        """Its note and plots as system attributes, as of now.

        Raises:
            NotFound: it was deleted.
        """
        with self._lock, self._database.read() as session:
            study = Studies(session).get(self._study_id)
            if study.data_version != self._beside[0]:
                spec = StudySpec.model_validate(study.spec)
                found = shown_beside_trials(session, study, spec, self._figures)
                self._beside = study.data_version, found
            return self._beside[1]

    def trials(self) -> Sequence[FrozenTrial]:
        """Its trials by number, as of now; what is given out is not changed later.

        Raises:
            NotFound: it was deleted.
        """
        with self._lock:
            with self._database.read() as session:
                study = Studies(session).get(self._study_id)
                is_open = (n for n, trial in self._trials.items() if not trial.state.is_finished())
                first = min(is_open, default=len(self._trials))
                changed = Trials(session).shown(study.id, after=self._version, first=first)
            self._trials |= {trial.number: self._frozen(trial) for trial in changed}
            self._version = study.data_version
            return [self._trials[number] for number in sorted(self._trials)]

    def _frozen(self, trial: ShownTrial) -> FrozenTrial:
        if self._distributions is None:
            dimensions = space_of(self._spec).dimensions
            self._distributions = {
                name: distribution_of(dimension) for name, dimension in dimensions.items()
            }
        state = STATES[trial.state]
        values = None
        if state == optuna.trial.TrialState.COMPLETE:
            found = [OBJECTIVE_KINDS[info.name].for_sampler(trial) for info in self.objectives]
            values = [float(value) for value in found if value is not None]
        return FrozenTrial(
            number=trial.number,
            trial_id=self._first_trial_id + trial.number,
            state=state,
            value=None,
            values=values,
            datetime_start=_here(trial.started_at or trial.created_at),
            datetime_complete=_here(trial.finished_at),
            params=dict(trial.drawn),
            distributions={name: self._distributions[name] for name in trial.drawn},
            user_attrs={
                **configuration_notes(self._spec, trial.number, trial.drawn, trial.hyperparameters),
                **outcome_notes(trial),
                **_paused_note(trial),
            },
            system_attrs={} if trial.violation is None else {CONSTRAINTS: [trial.violation]},
            intermediate_values={},
        )


def _paused_note(trial: ShownTrial) -> dict[str, str]:
    """Optuna knows no paused trials: to it they run."""
    if trial.state is not TrialState.PAUSED:
        return {}
    return {"paused": f"epoch {trial.epochs_trained}"}


def _here(at: datetime | None) -> datetime | None:
    """A time as Optuna writes it: by this machine's clock, without its zone."""
    return None if at is None else at.astimezone().replace(tzinfo=None)
