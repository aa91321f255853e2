"""Optuna's side of a study, in memory: what the sampler knows when it is asked.

Our tables are the truth. This side is made of our rows when a study is claimed, asked for
suggestions and told outcomes by the coordinator alone, and forgotten with the claim.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import optuna
from optuna.samplers import BaseSampler
from optuna.storages import InMemoryStorage
from optuna.study import StudyDirection

from search.documents.objectives import OBJECTIVE_KINDS
from search.fronts import objective_infos
from search.optuna_tables import study_name
from search.samplers import CONSTRAINTS, STATES, Past, SamplerContext, distribution_of
from search.spaces import CornerSource, Dimension, Proposal, Scalar
from search.studies import StudySpec
from storage.endings import TrialCause
from storage.records import StudyRecord, TrialRecord


def sampler_seed(seed: int, number: int, again: int = 0) -> int:
    """The seed of suggestion `number`, or of its `again`-th repetition.

    It follows from the study's seed alone, so it survives a restart.
    """
    words = [seed, number, 0, again] if again else [seed, number]
    return int(np.random.SeedSequence(words).generate_state(1)[0])


class _OurRowsAlone(InMemoryStorage):
    """Keeps nothing that our rows do not have.

    Samplers note things beside a trial's parameters. A study that was made of its rows would lack
    them, and suggest something else than one that was not broken off.
    """

    def set_trial_system_attr(self, trial_id: int, key: str, value: object) -> None:
        """Keep a violation of constraints, which is the row's."""
        if key == CONSTRAINTS:
            super().set_trial_system_attr(trial_id, key, value)  # pyright: ignore[reportArgumentType]


class OptunaStudy:
    """One study as Optuna's samplers see it."""

    def __init__(
        self,
        study: StudyRecord,
        spec: StudySpec,
        sampler_context: SamplerContext,
        trials: Sequence[TrialRecord],
    ) -> None:
        """`trials` are the study's rows, by number and without gaps."""
        self.unwritten: Sequence[TrialRecord] = ()
        """Trials that were asked for and whose rows are still to be written; samplers see them."""
        self._written = sampler_context.past
        self._sampler_context = replace(sampler_context, past=self._past)
        self._spec = spec
        self._infos = objective_infos(spec.task, spec.objectives)
        self._storage = _OurRowsAlone()
        self._name = study_name(study)
        directions = [StudyDirection[info.direction.upper()] for info in self._infos]
        self._storage.create_new_study(directions, study_name=self._name)
        self._study = optuna.Study(study_name=self._name, storage=self._storage)
        self._study.add_trials([self._running(trial) for trial in trials])
        for trial in trials:
            # What it was not told of yet still runs, see Note [Asks and tells].
            if trial.told_at is not None:
                self.tell(trial)

    @property
    def trials(self) -> Sequence[optuna.trial.FrozenTrial]:
        """Every trial that Optuna has, by number."""
        return self._study.get_trials(deepcopy=False)

    @property
    def next_number(self) -> int:
        """That of the next trial that is asked for."""
        return len(self.trials)

    def propose(self, number: int) -> Proposal:
        """The whole configuration of a suggestion, by a sampler that gives such."""
        return self._spec.sampler.propose(self._sampler_context, number)

    def ask(self) -> optuna.Trial:
        """A new trial; nothing is suggested yet."""
        number = len(self.trials)
        self._study.sampler = self._sampler(number)
        return self._study.ask()

    def rehearse(self, asked: optuna.Trial, again: int) -> "Rehearsal":
        """What the sampler would answer for an asked trial, without the trial being given it.

        `again` counts the rehearsals of the same trial, each of which has a seed of its own.
        """
        return Rehearsal(self._study, self._sampler(asked.number, again), self.trials[asked.number])

    def give(
        self, asked: optuna.Trial, values: Mapping[str, Scalar], dimensions: Mapping[str, Dimension]
    ) -> None:
        """Give an asked trial its values; what the sampler has suggested for it is among them."""
        frozen = self.trials[asked.number]
        trial_id = frozen._trial_id  # pyright: ignore[reportPrivateUsage]
        for name, value in values.items():
            if name not in frozen.params:
                distribution = distribution_of(dimensions[name])
                internal = distribution.to_internal_repr(value)
                self._storage.set_trial_param(trial_id, name, internal, distribution)

    def tell(self, trial: TrialRecord) -> None:
        """Tell how a trial ended; telling again what was told is harmless."""
        state = STATES[trial.state]
        frozen = self.trials[trial.number]
        if frozen.state.is_finished():
            return
        trial_id = frozen._trial_id  # pyright: ignore[reportPrivateUsage]
        complete = state == optuna.trial.TrialState.COMPLETE
        # What a measurement found later is known to some at the tell and to others not.
        found_later = complete and trial.cause is TrialCause.LIMIT
        if trial.violation is not None and not found_later:
            self._storage.set_trial_system_attr(trial_id, CONSTRAINTS, [trial.violation])
        values = objectives_of(trial, self._spec) if complete else None
        self._storage.set_trial_state_values(trial_id, state, values)

    def _past(self) -> Past:
        past = self._written()
        return replace(past, trials=[*past.trials, *self.unwritten]) if self.unwritten else past

    def _sampler(self, number: int, again: int = 0) -> BaseSampler:
        seed = sampler_seed(self._spec.seed, number, again)
        return self._spec.sampler.build_for(self._sampler_context, seed=seed)

    def _running(self, trial: TrialRecord) -> optuna.trial.FrozenTrial:
        dimensions = self._sampler_context.space.dimensions
        return optuna.trial.create_trial(
            state=optuna.trial.TrialState.RUNNING,
            params=dict(trial.drawn),
            distributions={name: distribution_of(dimensions[name]) for name in trial.drawn},
        )


def objectives_of(trial: TrialRecord, spec: StudySpec) -> list[float]:
    """What a complete trial is worth, objective by objective, as samplers are told it."""
    infos = objective_infos(spec.task, spec.objectives)
    values = [OBJECTIVE_KINDS[info.name].for_sampler(trial) for info in infos]
    return [float(value) for value in values if value is not None]


class Rehearsal:
    """A source of hyperparameters that answers as an asked trial would, and leaves nothing behind.

    It is of use for one draw.
    """

    def __init__(
        self, study: optuna.Study, sampler: BaseSampler, trial: optuna.trial.FrozenTrial
    ) -> None:
        self._study, self._sampler, self._trial = study, sampler, trial
        space = sampler.infer_relative_search_space(study, trial)
        self._relative = sampler.sample_relative(study, trial, space)

    def answer(self, dimension: Dimension) -> Scalar:
        """The sampler's value of one dimension."""
        distribution = distribution_of(dimension)
        if distribution.single():
            return CornerSource(highest=False).answer(dimension)
        found = self._relative.get(dimension.name)
        if found is not None and dimension.contains(found):
            return found
        return self._sampler.sample_independent(
            self._study, self._trial, dimension.name, distribution
        )
