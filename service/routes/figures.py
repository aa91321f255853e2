"""Figures of a study that follow from its trials: what mattered, and how its front grew."""

from typing import Annotated

from fastapi import APIRouter, Header, Response

from search.hypervolumes import HypervolumePoint
from search.importance import Importance
from service.entity_tags import NOT_MODIFIED, is_named, tag_of
from service.problems import documented
from service.resources import Held
from storage.studies import Studies

router = APIRouter(prefix="/v1/studies", tags=["studies"])

IfNoneMatch = Annotated[
    str | None, Header(description="the `ETag` of an earlier answer; 304 while it holds")
]


@router.get(
    "/{study_id}/importance",
    response_model=Importance,
    responses={**NOT_MODIFIED, **documented(403, 404)},
)
def get_importance(
    study_id: str, held: Held, response: Response, if_none_match: IfNoneMatch = None
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
    study_id: str, held: Held, response: Response, if_none_match: IfNoneMatch = None
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
