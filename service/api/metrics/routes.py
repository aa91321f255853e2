"""What the server tells of itself to Prometheus."""

from typing import Annotated

from fastapi import APIRouter, Header
from starlette.responses import PlainTextResponse, Response

from service.api.resources import Whole
from service.http.problems import documented

router = APIRouter(tags=["health"])


@router.get("/metrics", response_class=PlainTextResponse, responses=documented(403))
def get_server_metrics(
    whole: Whole,
    accept: Annotated[str, Header(description="`application/openmetrics-text` is known too")] = "",
) -> Response:
    """Requests, studies, slots, samplers and room, in Prometheus' text format.

    Where the database does not answer, `reflectory_database_up` is 0 and only this process is
    told of.
    """
    text, media_type = whole.metrics.text(accept)
    return Response(text, media_type=media_type)
