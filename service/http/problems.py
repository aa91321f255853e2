"""Error answers, all of them problem documents."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from starlette.responses import JSONResponse

from service.http.problem_document import Problem, ProblemFault, ReachedQuota

PROBLEM_MEDIA_TYPE = "application/problem+json"

_MOST_FAULTS = 50
_LONGEST_DETAIL = 10_000
"""A request may be wrong in thousands of places; nobody reads what is wrong with all of them."""

_COME_AGAIN = {HTTPStatus.SERVICE_UNAVAILABLE: {"Retry-After": "5"}}
"""What was out of reach may be back then, in seconds."""


def problem_response(
    status: int,
    detail: str,
    *,
    errors: Sequence[ProblemFault] = (),
    kind: str = "about:blank",
    title: str | None = None,
    reached: ReachedQuota | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """A problem document as a response."""
    shown = tuple(errors[:_MOST_FAULTS])
    if len(errors) > _MOST_FAULTS:
        more = f"and {len(errors) - _MOST_FAULTS} more places"
        shown, detail = (*shown, ProblemFault(path="", message=more)), f"{detail}; {more}"
    if len(detail) > _LONGEST_DETAIL:
        detail = f"{detail[:_LONGEST_DETAIL]}..."
    problem = Problem(
        type=kind,
        title=title or HTTPStatus(status).phrase,
        status=status,
        detail=detail,
        errors=shown,
        **({} if reached is None else reached.model_dump()),
    )
    return JSONResponse(
        problem.model_dump(mode="json", exclude_none=True),
        status_code=status,
        media_type=PROBLEM_MEDIA_TYPE,
        headers={**_COME_AGAIN.get(HTTPStatus(status), {}), **(headers or {})},
    )


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route that may answer with these problems."""
    return {
        status: {
            "description": HTTPStatus(status).phrase,
            "content": {PROBLEM_MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for status in statuses
    }
