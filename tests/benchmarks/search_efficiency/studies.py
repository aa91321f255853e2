"""What a sampler sees of a replayed search: a space to draw from, and trials as the tables have it.

The project's own samplers search the table through this, as they search a study.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import numpy as np
import optuna

from models.model import ModelSpec
from search.documents.objectives import USUAL_OBJECTIVES
from search.running import BROKEN
from search.samplers import (
    CONSTRAINTS,
    STATES,
    AnySampler,
    Past,
    Question,
    Random,
    RankedTrials,
    Ranking,
    SamplerContext,
    ranks_of,
)
from search.sampling.optuna_study import sampler_seed
from search.spaces import Candidate, DrawnTrial, Limits
from search.spaces.dimension import ChoiceDimension, Dimension, IntegerDimension, Scalar
from search.spaces.draws import Source, TrialSource
from search.training.trial_spec import TrainingSpec, TrialSpec
from storage.endings import TrialCause
from storage.records import TrialOrigin, TrialRecord, TrialState
from tests.benchmarks.search_efficiency.replay import Configuration, State, Trial
from tests.benchmarks.search_efficiency.spaces import Structure
from tests.benchmarks.search_efficiency.table import Table

_STATES: Mapping[State, TrialState] = {
    State.WAITING: TrialState.QUEUED,
    State.RUNNING: TrialState.RUNNING,
    State.PAUSED: TrialState.PAUSED,
    State.COMPLETE: TrialState.COMPLETE,
    State.STOPPED: TrialState.STOPPED,
    State.DIVERGED: TrialState.INFEASIBLE,
    State.GONE: TrialState.CANCELLED,
}
_BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)


class CountedModel(ModelSpec):
    """A model that is asked for its counts hundreds of times per suggestion."""

    @cached_property
    def _parameters(self) -> int:
        return super().parameter_count()

    @cached_property
    def _baseline(self) -> ModelSpec:
        return CountedModel.model_validate(super().dense_twin().model_dump())

    def parameter_count(self) -> int:
        """As it was counted the first time."""
        return self._parameters

    def dense_twin(self) -> ModelSpec:
        """As it was made the first time."""
        return self._baseline


@dataclass(frozen=True, kw_only=True)
class TableDraw(DrawnTrial):
    """One configuration, as samplers know it and as the replay does."""

    configuration: Configuration


class TableSpace:
    """A table's configurations as a space with conditional dimensions.

    Sizes and learning rates are dimensions of equal steps, levels belong to their parametrization.
    As in a study, architectures that differ in what is defined on them have a dimension each for
    that; here they then have sizes of their own as well.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._indices = {structure: i for i, structure in enumerate(table.structures)}
        space = table.space
        self._models = [
            CountedModel.model_validate(structure.model(space.task).model_dump())
            for structure in table.structures
        ]
        self._combinations = space.combinations
        self._is_shared = len(set(self._combinations.values())) == 1
        choices = {
            "architecture": space.architectures,
            **{
                self._of(architecture, "parametrization"): options
                for architecture, options in self._combinations.items()
            },
        }
        self._levels = {
            kind: levels
            for kind in space.parametrizations
            if len(levels := space.levels_of(kind)) > 1
        }
        numbers = {
            **{self._of(one, "hidden_size"): len(space.sizes) for one in self._combinations},
            **{_level(kind): len(levels) for kind, levels in self._levels.items()},
            "learning_rate": len(space.learning_rates),
        }
        self.dimensions: Mapping[str, Dimension] = {
            **{
                name: ChoiceDimension(name=name, options=options)
                for name, options in choices.items()
            },
            **{
                name: IntegerDimension(name=name, low=0, high=count - 1)
                for name, count in numbers.items()
            },
        }
        self._draws: dict[Configuration, TableDraw] = {}

    @property
    def conditions(self) -> Mapping[str, Sequence[tuple[str, Scalar]]]:
        """Dimension -> others, each with an option of it: the dimension is there with any."""
        own = () if self._is_shared else ("parametrization", "hidden_size")
        return {
            **{
                self._of(architecture, what): [("architecture", architecture)]
                for architecture in self._combinations
                for what in own
            },
            **{
                _level(kind): sorted(
                    {
                        (self._of(architecture, "parametrization"), kind)
                        for architecture, kinds in self._combinations.items()
                        if kind in kinds
                    }
                )
                for kind in self._levels
            },
        }

    def draw(self, source: Source) -> TableDraw:
        """One configuration by the source's answers."""

        def answer(name: str) -> Scalar:
            return source.answer(self.dimensions[name])

        architecture = str(answer("architecture"))
        size = self._table.space.sizes[int(answer(self._of(architecture, "hidden_size")))]
        parametrization = str(answer(self._of(architecture, "parametrization")))
        levels = self._levels.get(parametrization)
        level = 0 if levels is None else levels[int(answer(_level(parametrization)))]
        structure = Structure(architecture, size, parametrization, level)
        learning_rate = int(answer("learning_rate"))
        return self.at(Configuration(self._indices[structure], learning_rate))

    def at(self, configuration: Configuration) -> TableDraw:
        """A configuration of the table."""
        if configuration not in self._draws:
            self._draws[configuration] = self._described(configuration)
        return self._draws[configuration]

    def _described(self, configuration: Configuration) -> TableDraw:
        space, structure = self._table.space, self._table.structures[configuration.structure]
        numbers: dict[str, Scalar] = {
            self._of(structure.architecture, "hidden_size"): space.sizes.index(
                structure.hidden_size
            ),
            "learning_rate": configuration.learning_rate,
        }
        levels = self._levels.get(structure.parametrization)
        if levels is not None:
            numbers[_level(structure.parametrization)] = levels.index(structure.level)
        kinds: dict[str, Scalar] = {
            "architecture": structure.architecture,
            self._of(structure.architecture, "parametrization"): structure.parametrization,
        }
        training = TrainingSpec(
            learning_rate=space.learning_rates[configuration.learning_rate],
            batch_size=space.batch_size,
        )
        model = self._models[configuration.structure]
        return TableDraw(
            candidate=Candidate(
                architecture=structure.architecture, parametrization=structure.parametrization
            ),
            configuration=configuration,
            spec=TrialSpec(model=model, training=training, seed=0),
            hyperparameters={**numbers},
            drawn={**kinds, **numbers},
        )

    def _of(self, architecture: str, what: str) -> str:
        """The name of an architecture's dimension."""
        return what if self._is_shared else f"{architecture}.{what}"


class StudySampler:
    """One of the project's samplers, asked and told as a coordinator does it.

    Each suggestion has a sampler and a seed of its own, a complete trial is told its values, a
    stopped one that it was pruned, and a diverged one that it broke a limit as well. Throughput is
    known of what was asked for, as it is in a study that measures before it trains.
    """

    def __init__(self, table: Table, sampler: AnySampler, *, seed: int, **given: Any) -> None:
        """`given` is what a search has otherwise in its `SamplerContext`."""
        self.workers, self.trials = 1, 100
        self._given = given
        self._table, self._sampler, self._seed = table, sampler, seed
        self._space = TableSpace(table)
        self._study = optuna.create_study(directions=["maximize", "minimize", "maximize"])
        self._by_number: dict[int, optuna.Trial] = {}
        self._trials: Sequence[Trial] = ()
        self._ended: dict[int, TrialRecord] = {}

    @cached_property
    def _sampler_context(self) -> SamplerContext:
        return SamplerContext(
            space=self._space,
            objectives=USUAL_OBJECTIVES,
            metric=self._table.space.metric,
            seed=self._seed,
            epochs=self._table.epochs,
            trials=self.trials,
            limits=Limits(),
            file_bytes=lambda _: None,
            is_refused=lambda _: False,
            past=self._past,
            slots=lambda: self.workers,
            **self._given,
        )

    def propose(self, trials: Sequence[Trial]) -> Configuration:
        """Ask Optuna; the replay numbers what it takes."""
        self._trials = trials
        number = len(self._study.get_trials(deepcopy=False))
        self._study.sampler = self._sampler.build_for(
            self._sampler_context, seed=sampler_seed(self._seed, number)
        )
        trial = self._study.ask()
        self._by_number[len(trials)] = trial
        return self._space.draw(TrialSource(trial)).configuration

    def refuse(self) -> None:
        """Tell that the newest proposal failed."""
        _, trial = self._by_number.popitem()
        self._study.tell(trial, state=optuna.trial.TrialState.FAIL)

    def ended(self, trial: Trial) -> None:
        """Tell how a trial ended; one that was not proposed here is not told."""
        asked = self._by_number.get(trial.number)
        if asked is None:
            return
        if trial.state is State.DIVERGED:
            self._study._storage.set_trial_system_attr(asked._trial_id, CONSTRAINTS, [BROKEN])
        if trial.state is not State.COMPLETE:
            self._study.tell(asked, state=STATES[_STATES[trial.state]])
            return
        structure = trial.configuration.structure
        self._study.tell(
            asked,
            [
                trial.accuracy[-1],
                float(self._table.parameters[structure]),
                float(self._table.samples_per_second[structure]),
            ],
        )

    @property
    def rungs(self) -> tuple[int, ...]:
        """The epochs after which a trial may pause; none: it never does."""
        return self._sampler.rungs(self._table.epochs)

    def rank(self, trials: Sequence[Trial], question: Question) -> Ranking:
        """What is to train next."""
        self._trials = trials
        return self._sampler.rank(self._sampler_context, question)

    def _past(self) -> Past:
        return Past(
            trials=[self.record(trial) for trial in self._trials],
            validations={
                trial.number: dict(enumerate(trial.accuracy, start=1)) for trial in self._trials
            },
            validation_samples=self._table.space.validation_samples,
            epoch_seconds={
                trial.number: float(self._table.epoch_seconds[trial.configuration.structure])
                for trial in self._trials
                if trial.accuracy
            },
        )

    def record(self, trial: Trial) -> TrialRecord:
        """The row that a study's tables would have."""
        if trial.number in self._ended:
            return self._ended[trial.number]
        drawn, structure = self._space.at(trial.configuration), trial.configuration.structure
        model = drawn.spec.model
        has_ended = _STATES[trial.state].has_ended
        record = TrialRecord(
            study_id="replay",
            number=trial.number,
            state=_STATES[trial.state],
            architecture=model.architecture.kind,
            parametrization=model.parametrization.kind,
            hyperparameters=dict(drawn.hyperparameters),
            drawn=dict(drawn.drawn),
            spec=drawn.spec.model_dump(mode="json"),
            parameters=int(self._table.parameters[structure]),
            dense_parameters=model.dense_twin().parameter_count(),
            shape_key=str(structure),
            **_outcome(trial),
            origin=TrialOrigin.SAMPLER,
            epochs_trained=len(trial.accuracy),
            throughput=float(self._table.samples_per_second[structure]),
            measurement_id=str(structure),
            dispatched=trial.state not in (State.WAITING, State.GONE),
            stretch=trial.stretch,
            repeats=trial.repeats,
            created_at=_BEGINNING,
            started_at=_BEGINNING,
            finished_at=_BEGINNING if has_ended else None,
            told_at=_BEGINNING if has_ended else None,
        )
        if has_ended:
            self._ended[trial.number] = record
        return record


def _outcome(trial: Trial) -> dict[str, Any]:
    """What the row says of how a trial ended."""
    if trial.state is State.COMPLETE:
        return {"quality": trial.accuracy[-1]}
    if trial.state is not State.DIVERGED:
        return {}
    detail = f"epoch {len(trial.accuracy) + 1}, batch 1: the loss is nan"
    return {"cause": TrialCause.INFEASIBLE, "detail": detail, "violation": BROKEN}


def _level(parametrization: str) -> str:
    return f"{parametrization}.level"


def ranked_trials(table: Table, *, trials: int, seed: int, shuffled: bool = False) -> RankedTrials:
    """Full trainings of random configurations of a table, as a search of another one knows them.

    `shuffled`: each has the quality of another one, so that they tell nothing.
    """
    random = np.random.default_rng(np.random.SeedSequence([seed, trials]))
    structures = random.integers(len(table.structures), size=trials).tolist()
    rates = random.integers(len(table.space.learning_rates), size=trials).tolist()
    seeds = random.integers(table.seeds, size=trials).tolist()
    rows = zip(structures, rates, seeds, strict=True)
    curves: list[list[float]] = [table.accuracy[row].tolist() for row in rows]
    if shuffled:
        random.shuffle(curves)
    configurations = map(Configuration, structures, rates)
    found = [
        Trial(number - trials, configuration, 0, accuracy=curve, state=State.COMPLETE)
        for number, (configuration, curve) in enumerate(zip(configurations, curves, strict=True))
    ]
    sampler = StudySampler(table, Random(), seed=seed)
    return RankedTrials(
        trials=[sampler.record(trial) for trial in found],
        ranks=ranks_of([-curve[-1] for curve in curves]),
    )
