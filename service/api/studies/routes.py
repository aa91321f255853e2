"""Studies: submit, look at, steer, cancel."""

from typing import Annotated

from fastapi import APIRouter, Header, Query, Response

from search.dispatch.claim_policy import places_for
from search.documents.spaces import DryRun
from search.studies import commands, removal, submission
from search.studies import states as studies
from service.api.paths import study_path
from service.api.resources import Held, PageCursor, PageLimit, Resources
from service.api.studies.documents import study_document, study_documents
from service.api.studies.requests import OneStudy, StudyChange
from service.api.studies.schemas import StudyDocument, StudyPage
from service.api.waiting import PATIENCE_SECONDS, wait_for
from service.http.entity_tags import NOT_MODIFIED
from service.http.kept_answers import Keeping, Kept
from service.http.problems import documented
from service.webhooks.addresses import refuse_unreachable
from storage.records import StudyState
from storage.repositories.artifact_rows import ArtifactRows
from storage.repositories.studies import Studies

router = APIRouter(prefix="/v1/studies", tags=["studies"])


@router.post(
    "",
    status_code=202,
    responses={
        200: {"model": DryRun, "description": "Dry run: what would be searched"},
        **documented(403, 409, 413, 422),
    },
)
def submit_study(
    spec: OneStudy,
    held: Held,
    response: Response,
    dry_run: Annotated[
        bool, Query(description="check and describe the space; store nothing")
    ] = False,
    idempotency_key: Annotated[
        str | None,
        Header(
            min_length=1,
            max_length=200,
            description="repeating a request with the same key and spec gives the same study",
        ),
    ] = None,
) -> StudyDocument | DryRun:
    """Submit a study; a coordinator begins it as soon as there is room."""
    refuse_unreachable(spec, allow_private=held.settings.webhook_private)
    with held.database.read() as session:
        places = places_for(session, spec.resources, lease_seconds=held.settings.lease_seconds)
    if dry_run:
        response.status_code = 200
        return submission.dry_run(held.database, spec, sources=held.sources, places=places)
    study = submission.submit(
        held.database,
        spec,
        sources=held.sources,
        idempotency_key=idempotency_key,
        places=places,
    )
    response.headers["Location"] = study_path(study.id)
    return _now(study.id, held)


@router.get("", responses={**NOT_MODIFIED, **documented(403, 422)})
def list_studies(
    held: Held,
    kept: Kept,
    limit: PageLimit = 50,
    cursor: PageCursor = None,
    state: Annotated[StudyState | None, Query(description="only studies in this state")] = None,
    prefix: Annotated[
        str | None, Query(min_length=1, max_length=100, description="only ids that begin so")
    ] = None,
    name: Annotated[
        str | None, Query(max_length=200, description="only studies with exactly this name")
    ] = None,
    tag: Annotated[
        str | None, Query(max_length=50, description="only studies with this tag")
    ] = None,
    text: Annotated[
        str | None,
        Query(
            max_length=200,
            description="only studies whose name, notes or tags contain it, or whose id begins so",
        ),
    ] = None,
) -> StudyPage:
    """Studies, newest first; all that is asked for has to hold."""
    with held.database.read() as session:
        page = Studies(session).page(
            limit=limit,
            cursor=cursor,
            state=state,
            prefix=prefix,
            name=name,
            tag=tag,
            text=text or None,
        )
        return StudyPage(
            items=tuple(study_documents(session, page.items, held.figures, kept)),
            next_cursor=page.next_cursor,
        )


@router.get("/{study_id}", responses={**NOT_MODIFIED, **documented(403, 404)})
def get_study(study_id: str, held: Held, kept: Kept) -> StudyDocument:
    """One study and how far it is."""
    return _now(study_id, held, kept)


@router.post("/{study_id}/cancel", responses=documented(403, 404))
def cancel_study(study_id: str, held: Held) -> StudyDocument:
    """End a study at once: what waits and what runs is cancelled, what is complete stays.

    Asking twice is harmless.
    """
    studies.cancel(held.database, study_id, by=held.asker.label)
    return _now(study_id, held)


@router.patch("/{study_id}", responses=documented(403, 404, 409, 422))
def change_study(study_id: str, change: StudyChange, held: Held) -> StudyDocument:
    """Give a study another budget, priority, name, tags or notes; what is not named stays.

    Of a budget what is named changes, null takes a limit away, and a finished study runs on.
    `epochs` is fixed, or trials would not compare; nothing can be less than what is used up,
    suggestions that wait included. A priority counts from the next slot on that is free: what runs
    goes on.
    """
    commands.change(
        held.database,
        study_id,
        budget=change.budget,
        priority=change.priority,
        labels=change.labels,
    )
    return _now(study_id, held)


@router.delete("/{study_id}", status_code=204, responses=documented(403, 404, 409))
def delete_study(study_id: str, held: Held) -> Response:
    """Delete a study that has ended: its rows, its files and Optuna's study.

    Files that other studies have too stay. Optuna's study goes as soon as a coordinator runs.
    """
    removed = removal.delete(held.database, held.store, study_id)
    for attempt in removed.attempts:
        (held.settings.logs_dir / f"{attempt}.log").unlink(missing_ok=True)
    wait_for(held.database, removed.command_id, seconds=PATIENCE_SECONDS)
    return Response(status_code=204)


@router.post("/{study_id}/pause", responses=documented(403, 404))
def pause_study(study_id: str, held: Held) -> StudyDocument:
    """Pause a study. Running trials save a checkpoint, stop and free their slots.

    The time until it is resumed counts against no budget. Asking twice is harmless.
    """
    commands.pause(held.database, study_id, by=held.asker.label)
    return _now(study_id, held)


@router.post("/{study_id}/resume", responses=documented(403, 404))
def resume_study(study_id: str, held: Held) -> StudyDocument:
    """Resume a paused study, its trials from where they were. Asking twice is harmless."""
    commands.resume(held.database, study_id)
    return _now(study_id, held)


def _now(study_id: str, held: Resources, kept: Keeping | None = None) -> StudyDocument:
    """One study as it stands, with what its files take."""
    with held.database.read() as session:
        study = study_document(session, Studies(session).get(study_id), held.figures, kept)
        stored = ArtifactRows(session).bytes_of(study_id)
        return study.model_copy(update={"stored_bytes": stored})
