"""What the server tells of itself to Prometheus."""

from typing import Annotated

from fastapi import APIRouter, Header, Request
from starlette.responses import PlainTextResponse, Response

from service.metrics import ServiceMetrics
from service.problems import documented

router = APIRouter(tags=["health"])


@router.get("/metrics", response_class=PlainTextResponse, responses=documented(403))
def get_server_metrics(
    request: Request,
    accept: Annotated[str, Header(description="`application/openmetrics-text` is known too")] = "",
) -> Response:
    """Requests, studies, slots, samplers and room, in Prometheus' text format.

    Where the database does not answer, `reflectory_database_up` is 0 and only this process is
    told of.
    """
    # The application's own, which sees the rows of all: nothing here names any of them.
    metrics: ServiceMetrics = request.app.state.resources.metrics
    text, media_type = metrics.text(accept)
    return Response(text, media_type=media_type)
