"""The pages of one study and of its trials, and what a reader does with them."""

from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from sqlalchemy.orm import Session

from search.graphs.model_outputs import ModelOutputs
from search.studies.spec import StudySpec
from service.api.figures.gathering import (
    Asked,
    dimensions_on_front,
    infos_by_name,
    shown_study,
)
from service.api.folders import FolderMaker
from service.api.fronts.documents import front_document
from service.api.resources import Held, Resources
from service.api.studies.documents import study_document
from service.api.studies.routes import cancel_study, pause_study, resume_study
from service.api.trials.documents import trial_detail, trial_document
from service.api.trials.reports import conversion_of
from service.api.trials.routes import Number, measure_trial
from service.figures.importance import ranked_dimensions
from service.pages.html import page_response
from service.pages.network_views import network_view
from service.pages.report import region_words, spec_to_send
from service.pages.trial_table import trial_table
from service.rendering.study_view import Choice, StudyView
from service.rendering.trial_files import trial_files
from storage.records import StudyRecord
from storage.repositories.metrics import Metrics
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials
from storage.repositories.uploads import UploadedModels

router = APIRouter(prefix="/studies", include_in_schema=False)


@router.get("/{study_id}", response_class=HTMLResponse)
def study_page(study_id: str, held: Held, choice: Annotated[Choice, Query()]) -> HTMLResponse:
    """One study: progress, front, curves, trials."""
    with held.database.read() as session:
        view = _view(session, held, Studies(session).get(study_id), choice)
    return page_response(held.pages.study(view))


@router.post("/{study_id}/pause", response_class=RedirectResponse)
def pause_from_page(study_id: str, held: Held) -> RedirectResponse:
    """Pause a study, and show it."""
    pause_study(study_id, held)
    return _to_study(study_id)


@router.post("/{study_id}/resume", response_class=RedirectResponse)
def resume_from_page(study_id: str, held: Held) -> RedirectResponse:
    """Let a study go on, and show it."""
    resume_study(study_id, held)
    return _to_study(study_id)


@router.post("/{study_id}/cancel", response_class=RedirectResponse)
def cancel_from_page(study_id: str, held: Held) -> RedirectResponse:
    """End a study, and show it."""
    cancel_study(study_id, held)
    return _to_study(study_id)


@router.get("/{study_id}/trials/{number}", response_class=HTMLResponse)
def trial_page(study_id: str, number: Number, held: Held) -> HTMLResponse:
    """One trial: values, hyperparameters, attempts, curve, measurement, files."""
    with held.database.read() as session:
        study = Studies(session).get(study_id)
        trial = Trials(session).get(study_id, number)
        detail = trial_detail(session, study_id, number)
        epochs = Metrics(session).curve(study_id, number)
        model = UploadedModels(session).of_study(study.spec)
    spec = StudySpec.model_validate(study.spec)
    is_network = isinstance(spec.task, ModelOutputs)
    maker = FolderMaker(held.database, held.store, held.pages)
    return page_response(
        held.pages.trial(
            study,
            detail,
            metric=infos_by_name(spec)["quality"].metric,
            compressed=maker.compressed_page(study_id, number) if is_network else None,
            is_network=is_network,
            region=region_words(spec),
            preset=dict(enumerate(spec.presets)).get(number),
            model=model,
            conversion=conversion_of(held.database, held.store, study_id, number),
            epochs=epochs,
            files=trial_files(trial, detail),
        )
    )


@router.post("/{study_id}/trials/{number}/measure", response_class=RedirectResponse)
def measure_from_page(study_id: str, number: Number, held: Held) -> RedirectResponse:
    """Have a trial measured again, and show it."""
    measure_trial(study_id, number, held, Response())
    return RedirectResponse(f"/studies/{study_id}/trials/{number}", status_code=303)


def _to_study(study_id: str) -> RedirectResponse:
    return RedirectResponse(f"/studies/{study_id}", status_code=303)


def _view(session: Session, held: Resources, study: StudyRecord, choice: Choice) -> StudyView:
    spec = StudySpec.model_validate(study.spec)
    infos = infos_by_name(spec)
    found = held.figures.front(session, study)
    front = front_document(study.id, found)
    importance = held.figures.importance(session, study)
    known = [one for one in importance.objectives if one.dimensions]
    pinned = Trials(session).numbered(study.id, choice.pinned)
    return StudyView(
        study=study_document(session, study, held.figures),
        spec=spec_to_send(spec),
        model=UploadedModels(session).of_study(study.spec),
        network=network_view(session, study, spec, front),
        front=front,
        region=region_words(spec),
        infos=infos,
        choice=choice,
        axes=shown_study(Asked(session, study, held.figures)).axes(choice.x, choice.y),
        growth=held.figures.hypervolumes(session, study),
        importance=known,
        ranked=ranked_dimensions(known, dimensions_on_front(found)),
        table=trial_table(
            session,
            study,
            held.figures.trials(session, study),
            choice,
            metric=infos["quality"].metric,
            on_front=frozenset(point.trial for point in front.points),
        ),
        pinned=[trial_document(trial, (), spec.region) for trial in pinned],
        last_event=study.last_event,
        is_waiting=study.ending is not None and not study.state.has_ended,
    )
