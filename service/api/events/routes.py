"""A study's events as they happen (server-sent events)."""

from collections.abc import AsyncGenerator
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.exceptions import RequestValidationError
from starlette.responses import Response

from service.api.events.poller import Opening
from service.api.events.stream import EventStream, stream_of
from service.api.resources import Held
from service.http.problems import documented

router = APIRouter(prefix="/v1/studies", tags=["studies"])


class StreamIsOver(Exception):
    """The study has ended and the client has all of its events: there is nothing to wait for."""


def no_more_events(_request: Request, _error: Exception) -> Response:
    """Answer 204, which tells an event source not to connect again."""
    return Response(status_code=204)


class _Place(NamedTuple):
    """Where a stream begins, and what was found there."""

    after: int
    opening: Opening


async def _first_place(
    study_id: str,
    held: Held,
    last_event_id: Annotated[
        int | None,
        Header(
            alias="Last-Event-ID",
            ge=0,
            description="the last event's `id`; the stream goes on after it",
        ),
    ] = None,
    after: Annotated[
        int,
        Query(
            ge=0,
            description="where the stream begins without that header, which a browser sends only "
            "when it connects again",
        ),
    ] = 0,
) -> "_Place":
    """Where the stream begins; decided before its first byte is sent."""
    name = "after" if last_event_id is None else "Last-Event-ID"
    place = after if last_event_id is None else last_event_id
    study = await held.poller.opening(held.database, held.asker.tenant, study_id, place)
    if place > study.last_event:
        raise RequestValidationError(
            [
                {
                    "type": "value_error",
                    "loc": ("header", name),
                    "msg": f"the study's last event is {study.last_event}, not {place}",
                    "input": place,
                }
            ]
        )
    if study.ended and place == study.last_event:
        raise StreamIsOver
    return _Place(place, study)


async def _admitted(
    held: Held, place: Annotated["_Place", Depends(_first_place)]
) -> AsyncGenerator["_Place"]:
    """Where the stream begins, counted for as long as it is open."""
    with held.streams.one_more(held.asker, await held.quotas.of(held.asker.tenant)):
        yield place


@router.get(
    "/{study_id}/events",
    response_class=EventStream,
    responses={
        204: {"description": "The study has ended, and `Last-Event-ID` names its last event"},
        **documented(403, 404, 422),
    },
)
async def get_events(
    study_id: str, held: Held, place: Annotated[_Place, Depends(_admitted)]
) -> EventStream:
    """Every event of the study, from the first or after the one that is named, until it has ended.

    `id` is the event's number within the study, without gaps; `event` its kind: `study` and `trial`
    tell where one stands, `epoch` a point of a learning curve, `measurement` a throughput,
    `download` how far a file is. The stream ends soon after its key, or its browser's session.
    """
    return stream_of(held.poller, study_id, held.asker, after=place.after, opening=place.opening)
