"""What a study's measurements predict for shapes of it that were not measured."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from sqlalchemy.orm import Session

from search.measuring.prediction import (
    LEAST_SHAPES,
    Prediction,
    ShapeFacts,
    SpeedModel,
    baseline_facts,
    facts_of,
)
from search.running import StudyContext
from search.training.trial_spec import TrialSpec
from storage.records import TrialRecord
from storage.repositories.measurements import Measurements, Speed
from storage.repositories.trials import Trials

Predictions: TypeAlias = Mapping[str, Prediction]
"""By the field of a trial that holds what is measured."""

_QUANTITIES: Mapping[str, str] = {
    "throughput": "samples_per_second",
    "throughput_ratio": "ratio",
    "latency_p50": "latency_p50",
    "latency_p99": "latency_p99",
}
"""The field of a trial, and that of a measurement."""


class SpeedPredictions:
    """The predictions of one study for the device that it is measured on."""

    def __init__(self, study: StudyContext) -> None:
        self._study = study
        self._facts: dict[str, tuple[ShapeFacts, ShapeFacts | None]] = {}
        """Of each shape, and of its dense baseline."""
        self._speeds: Sequence[Speed] = ()
        self._models: dict[str, SpeedModel] = {}

    def refresh(self, session: Session) -> bool:
        """Read the study's measurements; whether there are others than before."""
        found = Measurements(session).speeds(self._study.id)
        device = self._study.spec.throughput.device or (found[0].device if found else None)
        speeds = [speed for speed in found if speed.device == device]
        if len(speeds) == len(self._speeds):
            return False
        self._speeds, self._models = speeds, {}
        return True

    def of(self, trials: Sequence[TrialRecord]) -> list[Predictions] | None:
        """What is predicted for each of the trials; None while too few shapes were measured."""
        if len({speed.shape_key for speed in self._speeds}) < LEAST_SHAPES:
            return None
        if self._study.spec.sampler.proposes:
            # Of a network of others no shapes are known from which speeds would follow.
            return None
        if not self._models:
            self._learn()
        shapes = [self._facts_of(trial) for trial in trials]
        columns = {name: model.predict(shapes) for name, model in self._models.items()}
        return [
            {name: column[place] for name, column in columns.items()}
            for place in range(len(trials))
        ]

    def _learn(self) -> None:
        unknown = {s.trial for s in self._speeds if s.shape_key not in self._facts}
        with self._study.database.read() as session:
            for trial in Trials(session).numbered(self._study.id, unknown):
                self._facts_of(trial)
        shapes = [self._facts[speed.shape_key][0] for speed in self._speeds]
        for field, name in _QUANTITIES.items():
            values = [getattr(speed, name) for speed in self._speeds]
            # A study asks for the same of every shape.
            if field == "throughput":
                self._models[field] = self._with_baselines(shapes, values)
            elif None not in values:
                self._models[field] = SpeedModel(shapes, values)

    def _with_baselines(self, shapes: Sequence[ShapeFacts], values: Sequence[float]) -> SpeedModel:
        """Learn from the dense baselines, too, which were measured in turn with the shapes.

        They tell as much of how a speed follows from sizes as the shapes do, and how much of the
        noise was the machine's at that time.
        """
        beside = [
            (baseline, speed.samples_per_second / speed.ratio, time)
            for time, speed in enumerate(self._speeds)
            if (baseline := self._facts[speed.shape_key][1]) is not None
        ]
        return SpeedModel(
            [*(facts for facts, _, _ in beside), *shapes],
            [*(value for _, value, _ in beside), *values],
            together=[*(time for _, _, time in beside), *range(len(values))],
        )

    def _facts_of(self, trial: TrialRecord) -> ShapeFacts:
        found = self._facts.get(trial.shape_key)
        if found is None:
            model = TrialSpec.model_validate(trial.spec).model
            found = self._facts[trial.shape_key] = facts_of(model), baseline_facts(model)
        return found[0]
