"""Requests that are turned away before a route sees them: why, and how they are answered."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Literal, TypeAlias, get_args

from starlette.responses import Response

from service.http.problems import problem_response

Reason: TypeAlias = Literal[
    "no-credential",
    "wrong-key",
    "scope",
    "not-local",
    "host",
    "origin",
    "socket",
    "rate-key",
    "rate-address",
    "body-encoded",
    "body-too-large",
    "body-too-deep",
    "body-not-text",
    "body-not-plain",
    "requests-at-once",
    "connections",
    "connections-address",
    "connection-idle",
    "head-slow",
    "body-slow",
    "body-unwanted",
    "answer-not-taken",
]
"""Why a request was turned away, as `/metrics` names it."""

REASONS: tuple[Reason, ...] = get_args(Reason)


@dataclass(eq=False)
class Refused(Exception):
    """A request that no route sees."""

    reason: Reason
    status: HTTPStatus
    detail: str
    kind: str
    """The problem's `type`, after `urn:reflectory:`."""
    title: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


def answer_to(refused: Refused) -> Response:
    """The problem document of a refusal."""
    return problem_response(
        refused.status,
        refused.detail,
        kind=f"urn:reflectory:{refused.kind}",
        title=refused.title,
        headers=refused.headers,
    )


def too_many(seconds: int, detail: str, *, reason: Reason) -> Refused:
    """The refusal of who has to wait."""
    return Refused(
        reason,
        HTTPStatus.TOO_MANY_REQUESTS,
        f"{detail}; ask again in {seconds} s",
        "too-many-requests",
        "Too many requests",
        {"Retry-After": str(seconds)},
    )
