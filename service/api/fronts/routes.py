"""What a study found: its front, the front's files, and figures that follow from its trials."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import AfterValidator

from search.documents.objectives import OBJECTIVES, Objective
from search.fronts.hypervolumes import HypervolumePoint
from search.fronts.importance import Importance
from search.fronts.recommendation import MAX_QUALITY_LOSS
from service.api.folders import FolderMaker
from service.api.fronts.bundle import bundle
from service.api.fronts.csv_tables import CSV, front_csv
from service.api.fronts.documents import front_document
from service.api.fronts.schemas import FrontDocument
from service.api.resources import Held
from service.api.stored_files import text
from service.http.entity_tags import NOT_MODIFIED, IfNoneMatch, is_named, tag_of
from service.http.kept_answers import Kept
from service.http.problems import documented
from service.http.written_streams import WrittenStream
from storage.repositories.studies import Studies

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


@router.get(
    "/{study_id}/front",
    response_model=FrontDocument,
    responses={
        200: {"content": text("text/csv")},
        **NOT_MODIFIED,
        **documented(403, 404, 422),
    },
)
def get_front(
    study_id: str,
    held: Held,
    _kept: Kept,
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
    max_quality_loss: Annotated[
        float,
        Query(
            ge=0,
            allow_inf_nan=False,
            description="what `recommendation.within_loss` may lose, in the metric's unit",
        ),
    ] = MAX_QUALITY_LOSS,
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
        front = held.figures.front(
            session, study, objectives=wanted, latest=latest, max_quality_loss=max_quality_loss
        )
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
            "description": "front.csv, front.json, and the folder of each point as far as it is",
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
        bundle(FolderMaker(held.database, held.store, held.pages), study_id, document),
        media_type="application/zip",
        headers={"Content-Disposition": f'attachment; filename="{study_id}.zip"'},
    )


@router.get(
    "/{study_id}/importance",
    response_model=Importance,
    responses={**NOT_MODIFIED, **documented(403, 404)},
)
def get_importance(
    study_id: str, held: Held, _kept: Kept, response: Response, if_none_match: IfNoneMatch = None
) -> Importance | Response:
    """What each dimension did to each objective: its share of what makes trials the best ones.

    By PED-ANOVA, which compares the values that the best tenth of the trials has (at least five)
    with those of all, also for dimensions that only some trials have. `trend` and `medians` tell
    which way it goes. An objective that too few trials have a value of has a `reason` instead.
    """
    with held.database.read() as session:
        study = Studies(session).get(study_id)
        tag = tag_of(study.data_version)
        if is_named(if_none_match, tag):
            return Response(status_code=304, headers={"ETag": tag})
        found = held.figures.importance(session, study)
    response.headers["ETag"] = tag
    return found


@router.get(
    "/{study_id}/hypervolume",
    response_model=list[HypervolumePoint],
    responses={**NOT_MODIFIED, **documented(403, 404)},
)
def get_hypervolume(
    study_id: str, held: Held, _kept: Kept, response: Response, if_none_match: IfNoneMatch = None
) -> tuple[HypervolumePoint, ...] | Response:
    """How the front's hypervolume grew: one item for every change of the front, in order."""
    with held.database.read() as session:
        study = Studies(session).get(study_id)
        tag = tag_of(study.last_event)
        if is_named(if_none_match, tag):
            return Response(status_code=304, headers={"ETag": tag})
        found = held.figures.hypervolumes(session, study)
    response.headers["ETag"] = tag
    return found
