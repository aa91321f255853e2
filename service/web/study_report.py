"""What the report of a study tells: all that its page does, in one file that can be kept."""

import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from sqlalchemy.orm import Session

from search.figures import Figures
from search.importance import ObjectiveImportance
from search.pareto import ObjectiveInfo, objective_infos
from search.spec import OBJECTIVES, Objective, StudySpec
from service.documents import (
    FrontDocument,
    PointDocument,
    StudyDocument,
    front_document,
    study_document,
)
from service.web.front_plot import FrontPlot, front_plot
from service.web.growth import Growth, growth
from storage.measurements import Measurements
from storage.records import StudyRecord, TrialRecord, TrialState
from storage.trials import Trials

_LISTED = 100
"""How many trials of each kind are listed that came to nothing; the rest are counted."""

_CIRCUMSTANCES = (
    *("device", "driver", "torch_version", "threads", "mode", "batch_size", "sequence_length"),
    *("dtype", "tf32", "clock"),
)
"""Of a measurement's record, what it shares with those that it is compared with."""

_PAIRS: tuple[tuple[Objective, Objective], ...] = (
    ("parameters", "quality"),
    ("throughput", "quality"),
    ("parameters", "throughput"),
)
"""What is plotted over what: across, and up."""

_PACKAGES = ("reflectory", "torch", "optuna", "numpy")


@dataclass(frozen=True, kw_only=True)
class Measured:
    """How the throughput of a point was measured."""

    trial: int
    record: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class CameToNothing:
    """Trials of one outcome that put no point on the front."""

    outcome: TrialState
    total: int
    trials: Sequence[TrialRecord]
    """The first of them."""


@dataclass(frozen=True, kw_only=True)
class StudyReport:
    """One study as its report tells it, all of one transaction."""

    study: StudyDocument
    spec: Mapping[str, Any]
    """As it can be sent again."""
    front: FrontDocument
    metric: str
    plots: tuple[FrontPlot, ...]
    """One for each pair of the objectives."""
    best: tuple[tuple[ObjectiveInfo, PointDocument], ...]
    circumstances: tuple[Mapping[str, Any], ...]
    """Those that measurements of the front were made in; one, unless devices were mixed."""
    measured: tuple[Measured, ...]
    came_to_nothing: tuple[CameToNothing, ...]
    growth: Growth | None
    importance: Sequence[ObjectiveImportance]
    versions: Mapping[str, str]
    last_event: int


def study_report(session: Session, study: StudyRecord, figures: Figures) -> StudyReport:
    """The report of a study as it stands."""
    spec = StudySpec.model_validate(study.spec)
    infos: dict[Objective, ObjectiveInfo] = {
        info.name: info for info in objective_infos(spec.task, OBJECTIVES)
    }
    document = study_document(session, study, figures)
    front = front_document(study.id, figures.front(session, study))
    measured = tuple(_measured(session, study.id, front))
    return StudyReport(
        study=document,
        spec=spec_to_send(spec),
        front=front,
        metric=infos["quality"].metric,
        plots=tuple(_plots(session, study, figures, front, infos, spec.presets)),
        best=tuple(_best(front)),
        circumstances=_circumstances(measured),
        measured=measured,
        came_to_nothing=tuple(_came_to_nothing(session, study.id, document)),
        growth=growth(
            figures.hypervolumes(session, study), epochs_trained=document.progress.epochs_trained
        ),
        importance=[
            found for found in figures.importance(session, study).objectives if found.dimensions
        ],
        versions={
            "python": platform.python_version(),
            **{package: version(package) for package in _PACKAGES},
        },
        last_event=study.last_event,
    )


def spec_to_send(spec: StudySpec) -> dict[str, Any]:
    """A study's document without what follows from its data, and without what is its owner's own.

    The address of a webhook may be as good as a password.
    """
    left_out: dict[str, Any] = {"task": {"facts"}, "compress": {"facts"}, "webhook": True}
    if spec.compress is not None:
        # It is that of the model.
        left_out["architectures"] = True
    return spec.model_dump(mode="json", exclude=left_out)


def _plots(
    session: Session,
    study: StudyRecord,
    figures: Figures,
    front: FrontDocument,
    infos: Mapping[Objective, ObjectiveInfo],
    presets: Sequence[str],
) -> Iterator[FrontPlot]:
    named = {info.name for info in front.objectives}
    for x, y in _PAIRS:
        if not {x, y} <= named:
            continue
        found = front_plot(
            figures.complete(session, study),
            frozenset(point.trial for point in front.points),
            infos=infos,
            x=x,
            y=y,
            presets=dict(enumerate(presets)),
        )
        if found is not None:
            yield found


def _best(front: FrontDocument) -> Iterator[tuple[ObjectiveInfo, PointDocument]]:
    for info in front.objectives:
        sign = -1.0 if info.direction == "maximize" else 1.0
        known = [
            (sign * value, point)
            for point in front.points
            if (value := getattr(point.values, info.name)) is not None
        ]
        if known:
            yield info, min(known, key=lambda pair: pair[0])[1]


def _measured(session: Session, study_id: str, front: FrontDocument) -> Iterator[Measured]:
    for point in front.points:
        trial = Trials(session).get(study_id, point.trial)
        if trial.measurement_id is not None:
            record = Measurements(session).get(trial.measurement_id).record
            yield Measured(trial=point.trial, record=record)


def _circumstances(measured: Sequence[Measured]) -> tuple[Mapping[str, Any], ...]:
    found: list[Mapping[str, Any]] = []
    for one in measured:
        shared = {name: one.record[name] for name in _CIRCUMSTANCES if name in one.record}
        if shared not in found:
            found.append(shared)
    return tuple(found)


def _came_to_nothing(
    session: Session, study_id: str, study: StudyDocument
) -> Iterator[CameToNothing]:
    totals = study.progress.trials
    for outcome, total in (
        (TrialState.STOPPED, totals.stopped),
        (TrialState.INFEASIBLE, totals.infeasible),
        (TrialState.FAILED, totals.failed),
        (TrialState.CANCELLED, totals.cancelled),
    ):
        if total:
            trials = Trials(session).ranked(
                study_id, by="number", descending=False, limit=_LISTED, state=outcome
            )
            yield CameToNothing(outcome=outcome, total=total, trials=trials)
