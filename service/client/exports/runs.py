"""A trial as trackers of experiments know it: one run."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from service.api.studies.schemas import StudyDocument
from service.api.trials.schemas import EpochDocument, TrialDocument
from service.client.transport.described import Described
from service.client.transport.steps import Steps, gathered
from service.client.trials import TrialCalls
from storage.records import TrialState

STUDY_TAG = "reflectory.study"
TRIAL_TAG = "reflectory.trial"

_CURVES = (
    "train_loss",
    "validation",
    "validation_loss",
    "spectral_margin",
    "gradient_first",
    "gradient_last",
)
_NOT_BEGUN = TrialState.QUEUED


@dataclass(frozen=True, kw_only=True)
class Point:
    """One epoch of a trial's curves."""

    epoch: int
    at: datetime
    """When it ended, as far as the trial's beginning and the seconds of its epochs tell."""
    values: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Run:
    """One trial."""

    study_id: str
    study_name: str
    trial: int
    outcome: TrialState
    started_at: datetime
    finished_at: datetime | None
    params: Mapping[str, str | int | float | bool]
    """Architecture, parametrization and hyperparameters."""
    curves: tuple[Point, ...]
    """By epoch; their names begin with `curve/`."""
    values: Mapping[str, float]
    """Objectives and test metrics, as far as they are known."""

    @property
    def name(self) -> str:
        """What people see."""
        return f"{self.study_name} trial {self.trial}"

    @property
    def key(self) -> str:
        """What tells it from all other runs: letters, digits and hyphens."""
        return f"{self.study_id}-{self.trial}"

    @property
    def tags(self) -> dict[str, str]:
        """By which it is found again, and how it stands."""
        return {
            STUDY_TAG: self.study_id,
            TRIAL_TAG: str(self.trial),
            "reflectory.study_name": self.study_name,
            "reflectory.outcome": str(self.outcome),
        }


@dataclass(frozen=True)
class Exported:
    """What was written."""

    to: str
    place: str
    """Where it is, in words of the target."""
    runs: int


def runs_of(client: Described, study: StudyDocument) -> Steps[list[Run]]:
    """The runs of all trials that have begun, in the order of their numbers."""
    trials = yield from gathered(TrialCalls.trials.steps(client, study.id))
    runs: list[Run] = []
    for trial in trials:
        if trial.outcome == _NOT_BEGUN:
            continue
        curve = yield from TrialCalls.metrics.steps(client, study.id, trial.number)
        runs.append(_run(study, trial, curve))
    return runs


def _run(study: StudyDocument, trial: TrialDocument, curve: list[EpochDocument]) -> Run:
    begun = trial.started_at or trial.created_at
    known = {
        **dict(trial.values.items()),
        "test_quality": trial.test_quality,
        "throughput_ratio": trial.throughput_ratio,
        "latency_p50": trial.latency_p50,
        "latency_p99": trial.latency_p99,
        "dense_parameters": trial.dense_parameters,
        "best_epoch": trial.best_epoch,
        "epochs_trained": trial.epochs_trained,
        **{f"test/{name}": value for name, value in trial.test_metrics.items()},
    }
    return Run(
        study_id=study.id,
        study_name=study.name,
        trial=trial.number,
        outcome=trial.outcome,
        started_at=begun,
        finished_at=trial.finished_at,
        params={
            "architecture": trial.architecture,
            "parametrization": trial.parametrization,
            **{name: one for name, one in trial.hyperparameters.items() if one is not None},
        },
        curves=tuple(_points(begun, curve)),
        values={name: float(value) for name, value in known.items() if value is not None},
    )


def _points(begun: datetime, curve: list[EpochDocument]) -> list[Point]:
    points: list[Point] = []
    seconds = 0.0
    for epoch in curve:
        seconds += epoch.seconds
        found = {f"curve/{name}": getattr(epoch, name) for name in _CURVES}
        points.append(
            Point(
                epoch=epoch.epoch,
                at=begun + timedelta(seconds=seconds),
                values={name: value for name, value in found.items() if value is not None},
            )
        )
    return points
