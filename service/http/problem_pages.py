"""Problem documents for people: a browser that opens a page is answered with a page."""

from collections.abc import Callable
from typing import Final, TypeAlias, final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import Message, Scope, Send

from service.http.problem_document import Problem
from service.http.problems import PROBLEM_MEDIA_TYPE

PageOfProblem: TypeAlias = Callable[[Problem, Scope], Response]
"""Makes the page of a problem that answers the request of a scope."""

_FOR_PROGRAMS: Final = frozenset({"v1", "healthz", "readyz", "metrics", "openapi.json"})
"""First parts of paths whose problems stay JSON, whatever a request accepts."""


def wants_page(scope: Scope, headers: Headers) -> bool:
    """Whether a request is a browser's, for something that is not only for programs."""
    first = scope["path"].lstrip("/").partition("/")[0]
    accepts = "text/html" in headers.get("accept", "")
    return accepts and scope["method"] != "HEAD" and first not in _FOR_PROGRAMS


@final
class ProblemsAsPages:
    """Sends an answer on; where it is a problem document, a page in its place."""

    def __init__(self, send: Send, scope: Scope, page_of: PageOfProblem) -> None:
        self._send = send
        self._scope = scope
        self._page_of = page_of
        self._start: Message | None = None
        self._body = b""

    async def __call__(self, message: Message) -> None:
        """Take one message of the answer."""
        if message["type"] == "http.response.start":
            if Headers(raw=message["headers"]).get("content-type") != PROBLEM_MEDIA_TYPE:
                await self._send(message)
                return
            self._start = message
        elif self._start is None:
            await self._send(message)
        else:
            self._body += message.get("body", b"")
            if not message.get("more_body", False):
                await self._give(self._start)

    async def _give(self, start: Message) -> None:
        page = self._page_of(Problem.model_validate_json(self._body), self._scope)
        headers = MutableHeaders(raw=list(start["headers"]))
        headers.update(page.headers)
        headers.add_vary_header("Accept")
        await self._send({**start, "headers": headers.raw})
        await self._send({"type": "http.response.body", "body": bytes(page.body)})
