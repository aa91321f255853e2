"""The page of a problem: the same sentences as its document's, and ways back."""

from collections.abc import Mapping
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Scope

from service.auth.principal import Principal
from service.http.problem_document import Problem
from service.http.problem_pages import PageOfProblem
from service.pages.html import page_response
from service.rendering.pages import Pages

_SECTIONS: Final[Mapping[str, str]] = {
    "studies": "Studies",
    "datasets": "Data sets",
    "models": "Models",
    "papers": "Papers",
}
"""What is listed, by the first part of the paths of its pages."""


def problem_pages(pages: Pages) -> PageOfProblem:
    """What makes pages of problems."""
    return partial(_page, pages)


def _page(pages: Pages, problem: Problem, scope: Scope) -> Response:
    principal: Principal | None = scope.get("state", {}).get("principal")
    shown = pages.of(logged_in=principal is not None and principal.via == "cookie")
    return page_response(shown.problem(problem, _ways_back(scope)), status=problem.status)


def _ways_back(scope: Scope) -> dict[str, str]:
    """Titles of links by where they lead: the page that the reader comes from, and lists."""
    path, query = scope["path"], scope["query_string"].decode("latin-1")
    here = f"{path}?{query}" if query else path
    found: dict[str, str] = {}
    before = _page_before(scope)
    if before is not None and before != here:
        found[before] = "Back"
    section = path.lstrip("/").partition("/")[0]
    place = f"/{section}" if section != "studies" else "/"
    if section in _SECTIONS and place != here:
        found.setdefault(place, _SECTIONS[section])
    if here != "/":
        found.setdefault("/", "Studies")
    return found


def _page_before(scope: Scope) -> str | None:
    """The path and query of this server's page that a request was made from."""
    headers = Headers(scope=scope)
    try:
        parts = urlsplit(headers.get("referer", ""))
    except ValueError:
        return None
    if not parts.netloc or parts.netloc != headers.get("host"):
        return None
    if not parts.path.startswith("/") or parts.path.startswith("//"):
        return None
    return f"{parts.path}?{parts.query}" if parts.query else parts.path
