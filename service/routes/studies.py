"""Studies: submit, look at, steer, cancel."""

from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import AfterValidator

from search import removal, steering, studies
from search.space import SpaceDescription
from search.spec import OBJECTIVES, Objective, StudySpec
from service.bundle import bundle
from service.csv_tables import CSV, front_csv
from service.documents import (
    FrontDocument,
    StudyChange,
    StudyDocument,
    StudyPage,
    front_document,
    study_document,
    study_path,
)
from service.entity_tags import NOT_MODIFIED, is_named, tag_of
from service.problems import documented
from service.resources import Held, PageCursor, PageLimit
from service.routes.figures import IfNoneMatch
from service.waiting import PATIENCE_SECONDS, wait_for
from service.webhooks.addresses import refuse_unreachable
from service.written_streams import WrittenStream
from storage.records import StudyState
from storage.studies import Studies

router = APIRouter(prefix="/v1/studies", tags=["studies"])

Records = Annotated[
    Literal["search", "latest"],
    Query(
        description="search: the records that the search went by; latest: the newest of each shape "
        "on the same device, see `measure`"
    ),
]


def _known_objectives(text: str) -> str:
    """A list of objectives, as text."""
    names = text.split(",")
    if not set(names) <= set(OBJECTIVES) or len(set(names)) != len(names):
        raise ValueError(
            f"allowed are {', '.join(OBJECTIVES)}, joined by commas, each once; not {text!r}"
        )
    return text


@router.post(
    "",
    status_code=202,
    responses={
        200: {"model": SpaceDescription, "description": "Dry run: what would be searched"},
        **documented(403, 413, 422),
    },
)
def submit_study(
    spec: StudySpec,
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
) -> StudyDocument | SpaceDescription:
    """Submit a study; a coordinator begins it as soon as there is room."""
    refuse_unreachable(spec, allow_private=held.settings.webhook_private)
    if dry_run:
        response.status_code = 200
        return studies.dry_run(held.database, spec, sources=held.sources)
    study = studies.submit(
        held.database, spec, sources=held.sources, idempotency_key=idempotency_key
    )
    response.headers["Location"] = study_path(study.id)
    with held.database.read() as session:
        return study_document(session, Studies(session).get(study.id), held.figures)


@router.get("", responses=documented(403, 422))
def list_studies(
    held: Held,
    limit: PageLimit = 50,
    cursor: PageCursor = None,
    state: Annotated[StudyState | None, Query(description="only studies in this state")] = None,
) -> StudyPage:
    """Studies, newest first."""
    with held.database.read() as session:
        page = Studies(session).page(limit=limit, cursor=cursor, state=state)
        return StudyPage(
            items=tuple(study_document(session, study, held.figures) for study in page.items),
            next_cursor=page.next_cursor,
        )


@router.get("/{study_id}", responses=documented(403, 404))
def get_study(study_id: str, held: Held) -> StudyDocument:
    """One study and how far it is."""
    with held.database.read() as session:
        return study_document(session, Studies(session).get(study_id), held.figures)


@router.post("/{study_id}/cancel", responses=documented(403, 404))
def cancel_study(study_id: str, held: Held) -> StudyDocument:
    """End a study at once: what waits and what runs is cancelled, what is complete stays.

    Asking twice is harmless.
    """
    studies.cancel(held.database, study_id, by=held.asker.label)
    with held.database.read() as session:
        return study_document(session, Studies(session).get(study_id), held.figures)


@router.patch("/{study_id}", responses=documented(403, 404, 409, 422))
def change_study(study_id: str, change: StudyChange, held: Held) -> StudyDocument:
    """Give a study another budget, another priority or both.

    Of a budget what is named changes, null takes a limit away, and a finished study runs on.
    `epochs` is fixed, or trials would not compare; nothing can be less than what is used up,
    suggestions that wait included. A priority counts from the next slot on that is free: what runs
    goes on.
    """
    steering.change(held.database, study_id, budget=change.budget, priority=change.priority)
    return get_study(study_id, held)


@router.delete("/{study_id}", status_code=204, responses=documented(403, 404, 409))
def delete_study(study_id: str, held: Held) -> Response:
    """Delete a study that has ended: its rows, its files and Optuna's study.

    Files that other studies have too stay. Optuna's study goes as soon as a coordinator runs.
    """
    removed = removal.delete(held.database, held.store, study_id)
    for attempt in removed.attempts:
        (held.settings.logs_dir / f"{attempt}.log").unlink(missing_ok=True)
    wait_for(held.database, removed.errand_id, seconds=PATIENCE_SECONDS)
    return Response(status_code=204)


@router.post("/{study_id}/pause", responses=documented(403, 404))
def pause_study(study_id: str, held: Held) -> StudyDocument:
    """Hold a study: nothing is begun, what trains stores where it is and frees its slot.

    The time until it is resumed counts against no budget. Asking twice is harmless.
    """
    steering.pause(held.database, study_id, by=held.asker.label)
    return get_study(study_id, held)


@router.post("/{study_id}/resume", responses=documented(403, 404))
def resume_study(study_id: str, held: Held) -> StudyDocument:
    """Let a paused study go on: its trials from where they were. Asking twice is harmless."""
    steering.resume(held.database, study_id)
    return get_study(study_id, held)


@router.get(
    "/{study_id}/front",
    response_model=FrontDocument,
    responses={
        200: {"content": {"text/csv": {"schema": {"type": "string"}}}},
        **NOT_MODIFIED,
        **documented(403, 404, 422),
    },
)
def get_front(
    study_id: str,
    held: Held,
    response: Response,
    objectives: Annotated[
        str | None,
        AfterValidator(_known_objectives),
        Query(
            description="objectives joined by commas; the study's own by default",
            examples=["quality,parameters"],
        ),
    ] = None,
    format: Annotated[Literal["json", "csv"], Query()] = "json",
    throughput: Records = "search",
    if_none_match: IfNoneMatch = None,
) -> FrontDocument | Response:
    """The Pareto front as it stands: complete trials that no other trial dominates."""
    wanted: tuple[Objective, ...] | None = None
    if objectives is not None:
        named = objectives.split(",")
        wanted = tuple(objective for objective in OBJECTIVES if objective in named)
    with held.database.read() as session:
        study = Studies(session).get(study_id)
        tag = tag_of(study.data_version)
        if is_named(if_none_match, tag):
            return Response(status_code=304, headers={"ETag": tag})
        latest = throughput == "latest"
        front = held.figures.front(session, study, objectives=wanted, latest=latest)
    document = front_document(study_id, front)
    if format == "csv":
        return Response(front_csv(document), media_type=CSV, headers={"ETag": tag})
    response.headers["ETag"] = tag
    return document


@router.get(
    "/{study_id}/bundle",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "front.csv, front.json and a folder per point: checkpoint, report, ONNX",
            "content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}},
        },
        **documented(403, 404),
    },
)
def get_bundle(study_id: str, held: Held, throughput: Records = "search") -> StreamingResponse:
    """All that the front's points are, in one ZIP file."""
    with held.database.read() as session:
        study = Studies(session).get(study_id)
        front = held.figures.front(session, study, latest=throughput == "latest")
    document = front_document(study_id, front)
    return WrittenStream(
        bundle(held.database, held.store, study_id, document),
        media_type="application/zip",
        headers={"Content-Disposition": f'attachment; filename="{study_id}.zip"'},
    )
