"""What holds for every request, whichever route answers it: one ASGI class, one pass.

A request gets an id, a line in the access log and a place in the counters; so many run at once, and
so many begin at a time; the gate lets it in by its head; what is kept is answered; its body is
limited. Its answer gets the headers that all have. What each of these does is in a module of its
own; here is their order.
"""

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any, Protocol, final

from anyio import BrokenResourceError
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from search.logs import bind_for_good
from service.auth.gate import Gate
from service.auth.origins import is_by_unix_socket
from service.auth.principal import Principal
from service.http.body_limits import BodyLimits, brings_body
from service.http.entity_tags import is_named
from service.http.kept_answers import KeptAnswer, KeptAnswers, tag_of_bytes
from service.http.problem_pages import PageOfProblem, ProblemsAsPages, wants_page
from service.http.problems import problem_response
from service.http.refusals import Refused, answer_to
from service.http.request_watch import (
    REQUEST_ID,
    RequestCounters,
    RequestSeen,
    brings_file,
    id_of,
    ids_of,
    known_method,
    pass_route_on,
    route_of,
)

_log = logging.getLogger(__name__)
_access = logging.getLogger("service.access")

_BEGIN_AT_ONCE = 4
_ALWAYS = frozenset({"/healthz", "/readyz"})

_HEADERS: Mapping[bytes, bytes] = {
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    # Our own pages' forms name their origin only where they may name a referrer.
    b"referrer-policy": b"same-origin",
    b"permissions-policy": b"camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    # Pages have policies of their own; what is none may load nothing when it is opened as one.
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
    # What a key or a cookie opened is for nobody else; it may be kept and asked after anew.
    b"cache-control": b"private, no-cache",
}
"""Headers that every answer carries unless it says otherwise: no guessed types, no referrer
elsewhere, no frame, nothing loaded, nothing shared."""
_PLAIN = tuple(_HEADERS.items())
_REQUEST_ID = REQUEST_ID.lower().encode()


class Direct(Protocol):
    """What may answer a request that was let in without the framework."""

    async def answered(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> bool:
        """Whether the request was answered; if not, nothing was sent."""
        ...


@final
class Entrance:
    """Passes requests on to the application, each through one `_Passage`."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        gate: Gate,
        bodies: BodyLimits,
        counters: RequestCounters,
        access_log: bool,
        most: int,
        direct: Direct,
        page_of: PageOfProblem,
    ) -> None:
        """`most` requests are under way at once; streams that are open count."""
        self.app = app
        self.gate = gate
        self.bodies = bodies
        self.counters = counters
        self.access_log = access_log
        self.most = most
        self.direct = direct
        self.page_of = page_of
        self.running = 0
        # Those that come in all at once begin a few at a time, so that a probe among them, or
        # another request that goes on, waits for a few and not for all of them.
        self.beginnings = asyncio.Semaphore(_BEGIN_AT_ONCE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it."""
        if scope["type"] == "http":
            await _Passage(self, scope, receive, send).go()
        elif scope["type"] == "websocket":
            # There are none here, and what the framework makes of one is no answer.
            await send({"type": "websocket.close", "code": 1008})
        else:
            await self.app(scope, receive, send)


@final
class _Passage:
    """One request on its way in, and its answer on its way out."""

    __slots__ = (
        "_began",
        "_brings_body",
        "_ended",
        "_entrance",
        "_head_only",
        "_headers",
        "_held_back",
        "_inner",
        "_key",
        "_making",
        "_receive",
        "_request_id",
        "_scope",
        "_send",
        "_status",
        "_unread",
    )

    def __init__(self, entrance: Entrance, scope: Scope, receive: Receive, send: Send) -> None:
        self._began = time.perf_counter()
        self._entrance = entrance
        self._scope = scope
        self._headers = Headers(scope=scope)
        self._request_id = id_of(self._headers)
        scope[REQUEST_ID] = self._request_id
        self._head_only = scope["method"] == "HEAD"
        # Answered as GET, without the body.
        self._inner: Scope = {**scope, "method": "GET"} if self._head_only else scope
        self._receive = receive
        self._send = (
            ProblemsAsPages(send, scope, entrance.page_of)
            if wants_page(scope, self._headers)
            else send
        )
        self._status: int | None = None
        self._ended = False
        self._brings_body = self._unread = brings_body(self._headers)
        self._key: tuple[str, str, bytes] | None = None
        self._held_back: Message | None = None
        self._making: asyncio.Future[KeptAnswer | None] | None = None

    async def go(self) -> None:
        """All of it."""
        # Each request is a task of its own, with a context that ends with it: what the server says
        # of an error after this call still has the id.
        bind_for_good(request_id=self._request_id)
        counters, has_file = self._entrance.counters, brings_file(self._headers)
        counters.begun(brings_file=has_file)
        try:
            await self._in_turn()
        except Exception:
            # The server answers 500, further out than this.
            if self._status is None:
                self._status = 500
                self._seen(500)
            raise
        finally:
            if self._status is None:
                self._seen(None)
            counters.over(brings_file=has_file)

    async def _in_turn(self) -> None:
        """Refuse what is one too many; probes and own attempts always pass."""
        entrance = self._entrance
        if self._scope["path"] in _ALWAYS or is_by_unix_socket(self._scope):
            await self._let_in(at_once=True)
            return
        if entrance.running >= entrance.most:
            entrance.counters.refused("requests-at-once")
            detail = f"{entrance.most} requests are under way, as many as are taken at once"
            refusal = problem_response(503, detail, headers={"Retry-After": "1"})
            await refusal(self._inner, self._receive, self._answer)
            return
        entrance.running += 1
        try:
            await self._let_in(at_once=False)
        finally:
            entrance.running -= 1

    async def _let_in(self, *, at_once: bool) -> None:
        entrance, inner = self._entrance, self._inner
        receive = self._watched if self._brings_body else self._receive
        refusal = await entrance.gate.refusal(inner, self._headers)
        if refusal is not None:
            await refusal(inner, receive, self._answer)
            return
        if await self._answered_by_what_is_kept():
            return
        try:
            await self._ask(receive, at_once=at_once)
        finally:
            if self._making is not None and self._key is not None:
                kept: KeptAnswers = inner["app"].state.kept
                kept.end(self._key, self._making, None)

    async def _ask(self, receive: Receive, *, at_once: bool) -> None:
        """Have a route answer."""
        entrance, inner = self._entrance, self._inner
        if not at_once:
            async with entrance.beginnings:
                await asyncio.sleep(0)
        if not self._brings_body and await entrance.direct.answered(
            inner, self._headers, receive, self._answer
        ):
            return
        try:
            taken = await entrance.bodies.taken(inner, self._headers, receive)
        except Refused as refused:
            entrance.counters.refused(refused.reason)
            await answer_to(refused)(inner, receive, self._answer)
            return
        if taken is None:
            return
        try:
            await entrance.app(inner, taken, self._answer)
        except* BrokenResourceError:
            # The end of a stream, and no error: FastAPI (0.165) raises out of a stream of events
            # when its client goes while an event is sent.
            _log.debug("a listener left", extra={"path": self._scope["path"]})

    async def _answered_by_what_is_kept(self) -> bool:
        """Answer what was answered before, if nothing has changed since."""
        scope = self._inner
        asker: Principal | None = scope["state"]["principal"]
        if scope["method"] != "GET" or asker is None or self._brings_body:
            return False
        self._key = (asker.tenant, scope["path"], scope["query_string"])
        kept: KeptAnswers = scope["app"].state.kept
        if not kept.knows(self._key):
            return False
        state = await kept.state()
        known = kept.get(self._key, state)
        making = None if known is not None else kept.making(self._key, state)
        if making is not None:
            # It was begun to be made when nothing was otherwise than now.
            known = await asyncio.shield(making)
        if known is None:
            self._making = kept.begin(self._key, state)
            return False
        scope["route"], scope["path_params"] = known.route, known.path_params
        await self._give(known)
        return True

    async def _give(self, known: KeptAnswer) -> None:
        """Send an answer, or tell that the client has it."""
        if is_named(self._headers.get("if-none-match"), known.tag):
            headers = [pair for pair in known.headers if not pair[0].startswith(b"content-")]
            await self._send_on({"type": "http.response.start", "status": 304, "headers": headers})
            await self._send_on({"type": "http.response.body", "body": b""})
            return
        start = {"type": "http.response.start", "status": 200, "headers": list(known.headers)}
        await self._send_on(start)
        await self._send_on({"type": "http.response.body", "body": known.body})

    async def _watched(self) -> Message:
        """Receive, and note whether all of the body was read."""
        message = await self._receive()
        self._unread = message.get("more_body", False) if self._unread else False
        return message

    async def _answer(self, message: Message) -> None:
        """Send what the application answers; what is to be kept first comes together."""
        if message["type"] == "http.response.start":
            keeping = self._inner.get("state", {}).get("keeping")
            if keeping is not None and keeping.state is not None and message["status"] == 200:
                self._held_back = message
                return
        elif self._held_back is not None:
            start, self._held_back = self._held_back, None
            if not message.get("more_body", False):
                await self._keep(start, message.get("body", b""))
                return
            await self._send_on(start)
        await self._send_on(message)

    async def _keep(self, start: Message, body: bytes) -> None:
        """Keep an answer that is whole, and give it."""
        headers: list[tuple[bytes, bytes]] = list(start["headers"])
        tag = next((value.decode("latin-1") for name, value in headers if name == b"etag"), None)
        if tag is None:
            tag = tag_of_bytes(body)
            headers.append((b"etag", tag.encode("latin-1")))
        scope = self._inner
        answer = KeptAnswer(
            state=scope["state"]["keeping"].state,
            headers=tuple(_with_plain(headers)),
            body=bytes(body),
            tag=tag,
            route=scope.get("route"),
            path_params=dict(scope.get("path_params", {})),
        )
        kept: KeptAnswers = scope["app"].state.kept
        if self._key is not None:
            kept.put(self._key, answer)
            if self._making is not None:
                kept.end(self._key, self._making, answer)
        await self._give(answer)

    async def _send_on(self, message: Message) -> None:
        """Send, with what every answer has."""
        if message["type"] != "http.response.start":
            if self._head_only:
                if self._ended:
                    return
                # Ending at the first piece tells a stream that nobody listens to it.
                self._ended = True
                message = {"type": "http.response.body", "body": b"", "more_body": False}
            await self._send(message)
            return
        if self._head_only:
            pass_route_on(self._scope, self._inner)
        headers = _with_plain(message.get("headers", ()))
        headers.append((_REQUEST_ID, self._request_id.encode("latin-1")))
        if self._unread:
            # What is still on its way would else be read and thrown away, however much it is.
            headers = [pair for pair in headers if pair[0] != b"connection"]
            headers.append((b"connection", b"close"))
        self._status = message["status"]
        self._seen(self._status)
        await self._send({**message, "headers": headers})

    def _seen(self, status: int | None) -> None:
        """Count and log the head of an answer, or that nobody is there any more to take it."""
        seconds = time.perf_counter() - self._began
        scope = self._scope
        method = known_method(scope["method"])
        self._entrance.counters.answered(RequestSeen(method, route_of(scope), status, seconds))
        if self._entrance.access_log:
            fields = {
                "method": method,
                # Without its query, which may hold what is nobody's business.
                "path": scope["path"],
                "status": status,
                "seconds": round(seconds, 4),
                "client": (scope.get("client") or ("unix socket",))[0],
                **ids_of(scope),
            }
            _access.info("request", extra=fields)


def _with_plain(given: Any) -> list[tuple[bytes, bytes]]:
    """The headers of an answer with those that every answer carries."""
    headers: list[tuple[bytes, bytes]] = [pair for pair in given if pair[0] != _REQUEST_ID]
    named = {name for name, _ in headers}
    headers += [pair for pair in _PLAIN if pair[0] not in named]
    return headers
