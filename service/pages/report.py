"""The report of a study: one HTML file that loads nothing, to keep, print or send."""

import platform
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from itertools import combinations, product
from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import HTMLResponse
from sqlalchemy.orm import Session

from search.documents.objectives import USUAL_OBJECTIVES, Objective, in_order
from search.fronts.figures import Figures
from search.fronts.pareto import ObjectiveInfo, objective_infos
from search.graphs.model_outputs import ModelOutputs
from search.studies.resolving import without_defaults
from search.studies.spec import NOT_OF_A_NETWORK, StudySpec
from service.api.fronts.documents import front_document
from service.api.fronts.schemas import FrontDocument, PointDocument
from service.api.resources import Held
from service.api.studies.documents import study_document
from service.api.studies.schemas import StudyDocument
from service.http.entity_tags import NOT_MODIFIED, IfNoneMatch, is_named, tag_of
from service.http.problems import documented
from service.pages.network_views import network_view, plot_words
from service.rendering.network_view import NetworkView
from service.rendering.plots.front_plot import FrontPlot, front_plot
from service.rendering.plots.growth import growth
from service.rendering.study_report import CameToNothing, Measured, StudyReport
from storage.records import StudyRecord, TrialState
from storage.repositories.measurements import Measurements
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials
from storage.repositories.uploads import UploadedModels

router = APIRouter(prefix="/v1/studies", tags=["studies"])

# Its style stands inside, it runs nothing, and it loads nothing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"


@router.get(
    "/{study_id}/report",
    response_class=HTMLResponse,
    responses={**NOT_MODIFIED, **documented(403, 404)},
)
def get_study_report(study_id: str, held: Held, if_none_match: IfNoneMatch = None) -> Response:
    """The study as one HTML file: fronts as plots, best points, circumstances, reasons.

    It needs nothing but itself: no script, no style and no picture is fetched.
    """
    with held.database.read() as session:
        study = Studies(session).get(study_id)
        headers = {
            "ETag": tag_of(study.data_version, study.last_event),
            # Of a 304 too: a browser takes its headers for those of the report that it has.
            "Content-Security-Policy": _POLICY,
            "Content-Disposition": f'inline; filename="study-{study.id}.html"',
        }
        if is_named(if_none_match, headers["ETag"]):
            return Response(status_code=304, headers=headers)
        report = study_report(session, study, held.figures)
    return HTMLResponse(held.pages.study_report(report), headers=headers)


_LISTED = 100
"""How many trials of each kind are listed that came to nothing; the rest are counted."""

_CIRCUMSTANCES = (
    *("device", "driver", "torch_version", "threads", "mode", "batch_size", "sequence_length"),
    *("dtype", "tf32", "clock", "runtime", "runtime_version", "compiler"),
)
"""Of a measurement's record, what it shares with those that it is compared with."""

_PACKAGES = ("reflectory", "torch", "optuna", "numpy")


def study_report(session: Session, study: StudyRecord, figures: Figures) -> StudyReport:
    """The report of a study as it stands."""
    spec = StudySpec.model_validate(study.spec)
    infos = infos_by_name(spec)
    document = study_document(session, study, figures)
    front = front_document(study.id, figures.front(session, study))
    network = network_view(session, study, spec, front)
    measured = tuple(_measured(session, study.id, front))
    return StudyReport(
        study=document,
        spec=spec_to_send(spec),
        model=UploadedModels(session).of_study(study.spec),
        network=network,
        front=front,
        region=region_words(spec),
        metric=infos["quality"].metric,
        plots=tuple(_plots(session, study, figures, front, infos, spec, network)),
        best=tuple((infos[info.name], point) for info, point in _best(front)),
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


def infos_by_name(spec: StudySpec) -> dict[Objective, ObjectiveInfo]:
    """What pictures of a study can show: its own objectives, then those that every trial has."""
    shown = tuple(dict.fromkeys((*in_order(spec.objectives), *USUAL_OBJECTIVES)))
    found: dict[Objective, ObjectiveInfo] = {
        info.name: info for info in objective_infos(spec.task, shown)
    }
    if isinstance(spec.task, ModelOutputs):
        title = spec.task.compared_by.title
        found["quality"] = found["quality"].model_copy(update={"metric": title})
    return found


def region_words(spec: StudySpec) -> str:
    """The region of interest in words, quality by the metric's name; empty where it is all."""
    return spec.region.words({name: info.metric for name, info in infos_by_name(spec).items()})


def spec_to_send(spec: StudySpec) -> dict[str, Any]:
    """A stored study's document without what submission adds, and what is its owner's own.

    The address of a webhook may be as good as a password.
    """
    left_out: dict[str, Any] = {"task": {"facts"}, "compress": {"facts"}, "webhook": True}
    if spec.compress is not None:
        # It is that of the model.
        left_out["architectures"] = True
    if isinstance(spec.task, ModelOutputs):
        # What trains models it has none of.
        left_out |= {**dict.fromkeys(NOT_OF_A_NETWORK, True), "budget": {"epochs", "total_epochs"}}
    return without_defaults(spec).model_dump(mode="json", exclude=left_out)


def _plots(
    session: Session,
    study: StudyRecord,
    figures: Figures,
    front: FrontDocument,
    infos: Mapping[Objective, ObjectiveInfo],
    spec: StudySpec,
    network: NetworkView | None,
) -> Iterator[FrontPlot]:
    named: set[str] = {info.name for info in front.objectives}
    trained, costs = in_order(named & {"quality"}), in_order(named - {"quality"})
    for x, y in (*product(costs, trained), *combinations(costs, 2)):
        found = front_plot(
            figures.complete(session, study),
            frozenset(point.trial for point in front.points),
            infos=infos,
            x=x,
            y=y,
            presets=dict(enumerate(spec.presets)),
            region=spec.region,
            words=plot_words(network),
            references=() if network is None else network.references,
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
