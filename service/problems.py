"""The one shape of every error answer: RFC 9457 problem documents."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse

PROBLEM_MEDIA_TYPE = "application/problem+json"

_COME_AGAIN = {HTTPStatus.SERVICE_UNAVAILABLE: {"Retry-After": "5"}}
"""What was out of reach may be back then, in seconds."""


class ProblemFault(BaseModel):
    """One thing wrong with a request: where, what was wrong, the value and what is allowed."""

    model_config = ConfigDict(frozen=True)

    path: str = Field(
        description="dotted, as in the document; or the name of a parameter or header"
    )
    message: str


class Problem(BaseModel):
    """What went wrong, in a sentence; `errors` names each part of the request that is at fault."""

    model_config = ConfigDict(frozen=True)

    type: str = Field(default="about:blank", description="names the kind of problem; stable")
    title: str
    status: int
    detail: str
    errors: tuple[ProblemFault, ...] = ()


def problem_response(
    status: int,
    detail: str,
    *,
    errors: Sequence[ProblemFault] = (),
    kind: str = "about:blank",
    title: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """A problem document as a response."""
    problem = Problem(
        type=kind,
        title=title or HTTPStatus(status).phrase,
        status=status,
        detail=detail,
        errors=tuple(errors),
    )
    return JSONResponse(
        problem.model_dump(mode="json"),
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
