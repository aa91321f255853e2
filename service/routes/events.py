"""A study's events as they happen (server-sent events)."""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Request
from fastapi.exceptions import RequestValidationError
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.responses import Response

from service.problems import documented
from service.resources import Held
from storage.studies import Studies

router = APIRouter(prefix="/v1/studies", tags=["studies"])


class StreamIsOver(Exception):
    """The study has ended and the client has all of its events: there is nothing to wait for."""


def no_more_events(_request: Request, _error: Exception) -> Response:
    """Answer 204, which tells an event source not to connect again."""
    return Response(status_code=204)


def _first_place(
    study_id: str,
    held: Held,
    last_event_id: Annotated[
        int,
        Header(
            alias="Last-Event-ID",
            ge=0,
            description="the last event's `id`; the stream goes on after it",
        ),
    ] = 0,
) -> int:
    """Where the stream begins; decided before its first byte is sent."""
    with held.database.read() as session:
        study = Studies(session).get(study_id)
    if last_event_id > study.last_event:
        raise RequestValidationError(
            [
                {
                    "type": "value_error",
                    "loc": ("header", "Last-Event-ID"),
                    "msg": f"the study's last event is {study.last_event}, not {last_event_id}",
                    "input": last_event_id,
                }
            ]
        )
    if study.state.has_ended and last_event_id == study.last_event:
        raise StreamIsOver
    return last_event_id


@router.get(
    "/{study_id}/events",
    response_class=EventSourceResponse,
    responses={
        204: {"description": "The study has ended, and `Last-Event-ID` names its last event"},
        **documented(403, 404, 422),
    },
)
async def get_events(
    study_id: str, held: Held, after: Annotated[int, Depends(_first_place)]
) -> AsyncIterator[ServerSentEvent]:
    """Every event of the study, from the first or after `Last-Event-ID`, until it has ended.

    `id` is the event's number within the study, without gaps; `event` its kind: `study` and `trial`
    tell where one stands, `epoch` a point of a learning curve, `measurement` a throughput,
    `download` how far a file is.
    """
    async for event in held.poller.listen(study_id, after=after):
        yield ServerSentEvent(
            event=event.kind,
            id=str(event.number),
            data={**event.payload, "at": event.created_at},
        )
