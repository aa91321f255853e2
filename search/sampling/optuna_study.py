"""Optuna's side of a study: the sampler's memory.

Our tables are the truth. This side is asked for suggestions and told outcomes, by the coordinator
alone; it can be thrown away and is then rebuilt from our rows in the order of their numbers.
"""

import logging
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler
from optuna.storages import BaseStorage

from search.errors import OptunaStudyDiverged
from search.fronts import objective_infos, value_of
from search.optuna_tables import study_name
from search.samplers import CONSTRAINTS, STATES, SamplerContext, distribution_of
from search.sampling.trial_attributes import configuration_notes, outcome_notes
from search.spaces import CornerSource, Dimension, Scalar, Source, TrialSource
from search.studies import StudySpec
from storage.records import StudyRecord, TrialRecord

_log = logging.getLogger(__name__)


def sampler_seed(seed: int, number: int, again: int = 0) -> int:
    """The seed of suggestion `number`, or of its `again`-th repetition.

    It follows from the study's seed alone, so it survives a restart.
    """
    words = [seed, number, 0, again] if again else [seed, number]
    return int(np.random.SeedSequence(words).generate_state(1)[0])


class OptunaStudy:
    """One study in Optuna's storage."""

    def __init__(
        self,
        storage: BaseStorage,
        study: StudyRecord,
        spec: StudySpec,
        sampler_context: SamplerContext,
    ) -> None:
        self._storage = storage
        self._sampler_context = sampler_context
        self._spec = spec
        self._infos = objective_infos(spec.task, spec.objectives)
        self._name = study_name(study)
        self._study = self._open()

    @property
    def trials(self) -> Sequence[optuna.trial.FrozenTrial]:
        """Every trial that Optuna has, by number."""
        return self._study.get_trials(deepcopy=False)

    def ask(self, number: int) -> optuna.Trial:
        """A new trial, which must get this number; nothing is suggested yet.

        Raises:
            OptunaStudyDiverged: Optuna has other trials than the number says.
        """
        self._study.sampler = self._sampler(number)
        trial = self._study.ask()
        if trial.number != number:
            raise OptunaStudyDiverged(
                f"Optuna numbers the trial {trial.number}, our tables say {number}"
            )
        return trial

    def reopen(self, number: int) -> optuna.Trial:
        """A trial that was asked and not told; what it was given before, it answers again."""
        self._study.sampler = self._sampler(number)
        frozen = self.trials[number]
        return optuna.Trial(self._study, frozen._trial_id)  # pyright: ignore[reportPrivateUsage]

    def source(self, asked: optuna.Trial) -> Source:
        """The sampler's answers for an asked trial; half drawn by then, it ends up the same."""
        half_drawn = self.trials[asked.number].params
        return self.rehearse(asked, 0) if half_drawn else TrialSource(asked)

    def rehearse(self, asked: optuna.Trial, again: int) -> "Rehearsal":
        """What the sampler would answer for an asked trial, without the trial being given it.

        `again` counts the rehearsals of the same trial, each of which has a seed of its own.
        """
        return Rehearsal(self._study, self._sampler(asked.number, again), self.trials[asked.number])

    def give(
        self, asked: optuna.Trial, values: Mapping[str, Scalar], dimensions: Mapping[str, Dimension]
    ) -> None:
        """Give an asked trial its values, instead of having the sampler suggest them.

        What it was given before is left as it is, so that this can be done again after a crash.
        """
        frozen = self.trials[asked.number]
        trial_id = frozen._trial_id  # pyright: ignore[reportPrivateUsage]
        for name, value in values.items():
            if name not in frozen.params:
                distribution = distribution_of(dimensions[name])
                internal = distribution.to_internal_repr(value)
                self._storage.set_trial_param(trial_id, name, internal, distribution)

    def annotate(self, asked: optuna.Trial, hyperparameters: Mapping[str, Any]) -> None:
        """Show what the parameters do not tell of a trial's configuration."""
        params = self.trials[asked.number].params
        notes = configuration_notes(self._spec, asked.number, params, hyperparameters)
        for name, value in notes.items():
            asked.set_user_attr(name, value)

    def tell(self, trial: TrialRecord) -> None:
        """Tell how a trial ended; telling again what was told is harmless."""
        state = STATES[trial.state]
        frozen = self.trials[trial.number]
        if frozen.state.is_finished():
            return
        trial_id = frozen._trial_id  # pyright: ignore[reportPrivateUsage]
        for name, value in outcome_notes(trial).items():
            self._storage.set_trial_user_attr(trial_id, name, value)
        if trial.violation is not None:
            self._storage.set_trial_system_attr(trial_id, CONSTRAINTS, [trial.violation])
        values = self._values(trial) if state == optuna.trial.TrialState.COMPLETE else None
        self._study.tell(trial.number, values, state=state, skip_if_finished=True)

    def rebuild(self, trials: Sequence[TrialRecord], dimensions: Mapping[str, Dimension]) -> None:
        """Throw Optuna's study away and make it again from our rows, which have no gaps."""
        _log.warning(
            "rebuilding Optuna's study", extra={"study": self._name, "trials": len(trials)}
        )
        optuna.delete_study(study_name=self._name, storage=self._storage)
        self._study = self._open()
        self._study.add_trials([self._frozen(trial, dimensions) for trial in trials])

    def _sampler(self, number: int, again: int = 0) -> BaseSampler:
        seed = sampler_seed(self._spec.seed, number, again)
        return self._spec.sampler.build_for(self._sampler_context, seed=seed)

    def _open(self) -> optuna.Study:
        study = optuna.create_study(
            study_name=self._name,
            storage=self._storage,
            directions=[info.direction for info in self._infos],
            load_if_exists=True,
        )
        names = [info.metric for info in self._infos]
        if study.metric_names != names:
            with warnings.catch_warnings():
                # Known since 3.2 as experimental; the dashboard shows objectives by these names.
                warnings.simplefilter("ignore", ExperimentalWarning)
                study.set_metric_names(names)
        return study

    def _values(self, trial: TrialRecord) -> list[float]:
        values = [value_of(trial, info.name) for info in self._infos]
        return [float(value) for value in values if value is not None]

    def _frozen(
        self, trial: TrialRecord, dimensions: Mapping[str, Dimension]
    ) -> optuna.trial.FrozenTrial:
        state = STATES[trial.state]
        complete = state == optuna.trial.TrialState.COMPLETE
        return optuna.trial.create_trial(
            state=state,
            params=dict(trial.drawn),
            distributions={name: distribution_of(dimensions[name]) for name in trial.drawn},
            values=self._values(trial) if complete else None,
            user_attrs={
                **configuration_notes(self._spec, trial.number, trial.drawn, trial.hyperparameters),
                **outcome_notes(trial),
            },
            system_attrs={} if trial.violation is None else {CONSTRAINTS: [trial.violation]},
        )


class Rehearsal:
    """A source of hyperparameters that answers as an asked trial would, and leaves nothing behind.

    What the trial was given before, by a coordinator that died, stands.
    """

    def __init__(
        self, study: optuna.Study, sampler: BaseSampler, trial: optuna.trial.FrozenTrial
    ) -> None:
        self._study, self._sampler, self._trial = study, sampler, trial
        space = sampler.infer_relative_search_space(study, trial)
        self._relative = sampler.sample_relative(study, trial, space)

    def answer(self, dimension: Dimension) -> Scalar:
        """The sampler's value of one dimension."""
        # The sampler answers what is known, too: each answer moves its random numbers on.
        sampled = self._sampled(dimension)
        return self._trial.params.get(dimension.name, sampled)

    def _sampled(self, dimension: Dimension) -> Scalar:
        distribution = distribution_of(dimension)
        if distribution.single():
            return CornerSource(highest=False).answer(dimension)
        if dimension.name in self._relative:
            return self._relative[dimension.name]
        return self._sampler.sample_independent(
            self._study, self._trial, dimension.name, distribution
        )
