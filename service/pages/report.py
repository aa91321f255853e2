"""The report of a study: one HTML file that loads nothing, to keep, print or send."""

import platform
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from fastapi.responses import HTMLResponse
from sqlalchemy.orm import Session

from search.fronts.figures import Figures
from search.fronts.pareto import ObjectiveInfo
from search.graphs.model_outputs import ModelOutputs
from search.studies.resolving import without_defaults
from search.studies.spec import NOT_OF_A_NETWORK, StudySpec
from service.api.figures.gathering import Asked, dimensions_on_front, infos_by_name
from service.api.fronts.documents import front_document
from service.api.fronts.schemas import FrontDocument, PointDocument
from service.api.resources import Held
from service.api.studies.documents import study_document
from service.api.studies.schemas import StudyDocument
from service.figures.importance import ranked_dimensions
from service.http.entity_tags import NOT_MODIFIED, IfNoneMatch, is_named, tag_of
from service.http.problems import documented
from service.pages.network_views import network_view
from service.pages.report_figures import PLAIN_POLICY, drawing_policy, report_figures
from service.rendering.study_report import CameToNothing, Measured, StudyReport
from storage.records import StudyRecord, TrialState
from storage.repositories.measurements import Measurements
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials
from storage.repositories.uploads import UploadedModels

router = APIRouter(prefix="/v1/studies", tags=["studies"])


@router.get(
    "/{study_id}/report",
    response_class=HTMLResponse,
    responses={**NOT_MODIFIED, **documented(403, 404, 422)},
)
def get_study_report(
    study_id: str,
    held: Held,
    plain: Annotated[
        bool, Query(description="tables alone: no figure, no script, and a fraction of the bytes")
    ] = False,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """The study as one HTML file: figures, best points, circumstances, reasons.

    It needs nothing but itself: no script, no style and no picture is fetched. Its figures can be
    zoomed, and take 5 MB.
    """
    with held.database.read() as session:
        study = Studies(session).get(study_id)
        headers = {
            "ETag": tag_of(study.data_version, study.last_event),
            # Of a 304 too: a browser takes its headers for those of the report that it has.
            "Content-Security-Policy": PLAIN_POLICY if plain else drawing_policy(),
            "Content-Disposition": f'inline; filename="study-{study.id}.html"',
        }
        if is_named(if_none_match, headers["ETag"]):
            return Response(status_code=304, headers=headers)
        report = study_report(session, study, held.figures, plain=plain)
    return HTMLResponse(held.pages.study_report(report), headers=headers)


_LISTED = 100
"""How many trials of each kind are listed that came to nothing; the rest are counted."""

_CIRCUMSTANCES = (
    *("device", "driver", "torch_version", "threads", "mode", "batch_size", "sequence_length"),
    *("dtype", "tf32", "clock", "runtime", "runtime_version", "compiler"),
)
"""Of a measurement's record, what it shares with those that it is compared with."""

_PACKAGES = ("reflectory", "torch", "optuna", "numpy")


def study_report(
    session: Session, study: StudyRecord, figures: Figures, *, plain: bool = False
) -> StudyReport:
    """The report of a study as it stands; a plain one has no figures."""
    spec = StudySpec.model_validate(study.spec)
    infos = infos_by_name(spec)
    document = study_document(session, study, figures)
    found = figures.front(session, study)
    front = front_document(study.id, found)
    importance = [one for one in figures.importance(session, study).objectives if one.dimensions]
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
        figures=() if plain else tuple(report_figures(Asked(session, study, figures))),
        best=tuple((infos[info.name], point) for info, point in _best(front)),
        circumstances=_circumstances(measured),
        measured=measured,
        came_to_nothing=tuple(_came_to_nothing(session, study.id, document)),
        growth=figures.hypervolumes(session, study),
        importance=importance,
        ranked=ranked_dimensions(importance, dimensions_on_front(found)),
        versions={
            "python": platform.python_version(),
            **{package: version(package) for package in _PACKAGES},
        },
        last_event=study.last_event,
    )


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
