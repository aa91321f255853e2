"""What all calls are described with: what is asked, again where that is safe, what answers mean."""

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any, Protocol, TypeVar, cast

import httpx2
from pydantic import ValidationError

from service.client.errors import ClientError, Refused, Unfinished, Unreachable
from service.client.reading import read
from service.client.transport.backoff import BUSY_STATUSES, TRANSIENT, Busy, NotYet
from service.client.transport.steps import (
    Item,
    Open,
    Opened,
    Send,
    Steps,
    Stream,
    opened,
    repeated,
    send,
)
from service.http.problem_document import Problem, ProblemFault

_I = TypeVar("_I", covariant=True)
_T = TypeVar("_T")

PATIENCE = 3.0
"""Seconds over which a request is tried again, unless others are given."""
WATCH_PATIENCE = 120.0
"""Seconds that a server may stay away from who follows a study, as `watch` has it too."""
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_PAGE = 100
_PROBLEM = "application/problem+json"
_KEY_VARIABLE = "REFLECTORY_KEY"
_KEY = re.compile(r"[!-~]+")


class _Page(Protocol[_I]):
    """One page of a list."""

    @property
    def items(self) -> Sequence[_I]:
        """What is on it."""
        ...

    @property
    def next_cursor(self) -> str | None:
        """Where the next one begins; None on the last."""
        ...


class Described:
    """The steps that calls are made of, for one server. Nothing here reads or writes."""

    server: str
    """Base URL."""
    _patience: float
    _timeout: float

    def ask(
        self,
        kind: type[_T],
        method: str,
        path: str,
        *,
        body: Any = None,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool = True,
        patience: float | None = None,
    ) -> Steps[_T]:
        """The answer to a request, as a document."""
        answer = yield from self._request(
            method,
            path,
            body=body,
            params=params,
            headers=headers,
            repeatable=repeatable,
            patience=patience,
        )
        return self._read(kind, answer)

    def _text(self, path: str, **params: str) -> Steps[str]:
        return (yield from self._request("GET", path, params=params)).text

    def pages(
        self, kind: type[_Page[_I]], path: str, params: Mapping[str, str | None]
    ) -> Stream[_I]:
        """The items of all pages of a list; null parameters are left out."""
        query = {name: value for name, value in params.items() if value is not None}
        query["limit"] = str(_PAGE)
        while True:
            page = yield from self.ask(kind, "GET", path, params=query)
            for item in page.items:
                yield Item(item)
            if page.next_cursor is None:
                return
            query["cursor"] = page.next_cursor

    def _remove(self, path: str) -> Steps[None]:
        """Delete what is there; gone already is as good, where only the answer was lost."""
        tries = 0

        def work() -> Steps[None]:
            nonlocal tries
            tries += 1
            try:
                yield from send(Send(method="DELETE", path=path))
            except Refused as error:
                if tries == 1 or error.problem.status != HTTPStatus.NOT_FOUND:
                    raise

        yield from self._again(work)

    def _request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool = True,
        patience: float | None = None,
    ) -> Steps[httpx2.Response]:
        check_numbers(body)
        request = Send(method=method, path=path, body=body, params=params, headers=headers)
        patience = patience if repeatable else 0.0
        return (yield from self._again(partial(send, request), patience=patience))

    def _stream(
        self, path: str, *, headers: Mapping[str, str], events: bool = False
    ) -> Steps[Opened]:
        return (yield from opened(Open(url=path, headers=headers, events=events)))

    def _read(self, kind: type[_T], response: httpx2.Response) -> _T:
        try:
            return read(kind, response.content)
        except ValidationError as error:
            fault = error.errors(include_url=False, include_input=False)[0]
            request = response.request
            place = "".join(f"{part}: " for part in fault["loc"])
            raise Unreachable(
                f"what answers at {self.server} is no Reflectory server, or one of another "
                f"version: {request.method} {request.url.path}: {place}{fault['msg']}"
            ) from error

    def _again(self, work: Callable[[], Steps[_T]], *, patience: float | None = None) -> Steps[_T]:
        try:
            return (yield from repeated(work, self._patience if patience is None else patience))
        except TRANSIENT as fault:
            raise self._unreachable(fault) from fault

    def _until_made(
        self, look: Callable[[], Steps[_T]], unfinished: str, *, patience: float
    ) -> Steps[_T]:
        """What `look` returns, which raises `NotYet` while the server makes it.

        Raises:
            Unfinished: it was not made within `patience` seconds.
            Unreachable: the server stayed away.
        """
        try:
            return (yield from repeated(look, patience))
        except NotYet as missing:
            raise Unfinished(unfinished) from missing
        except httpx2.TransportError as fault:
            raise self._unreachable(fault) from fault

    def _unreachable(self, fault: Exception) -> ClientError:
        """The error for a fault that stayed: a refusal where the server gave its reason."""
        if isinstance(fault, Busy) and _is_problem(fault.response):
            return Refused(_problem(fault.response))
        return Unreachable(f"no Reflectory server answers at {self.server}: {fault}")


def checked_url(server: str) -> httpx2.URL:
    """A server's base URL.

    Raises:
        Unreachable: it is none.
    """
    try:
        url = httpx2.URL(server)
    except httpx2.InvalidURL as error:
        raise Unreachable(f"{server!r} is no URL: {error}") from error
    if url.userinfo:
        raise Unreachable("the server's URL holds a password; a key belongs into REFLECTORY_KEY")
    if url.scheme not in ("http", "https") or not url.host:
        raise Unreachable(f"{server!r} is no URL of a server; write http://HOST:PORT")
    return url


def credentials(key: str | None) -> dict[str, str]:
    """The header that shows a key; none without one."""
    found = (os.environ.get(_KEY_VARIABLE, "") if key is None else key).strip()
    if not found:
        return {}
    if not _KEY.fullmatch(found):
        raise ValueError("the API key holds characters that no key has: spaces, or not ASCII")
    return {"Authorization": f"Bearer {found}"}


def refusal(detail: str, *faults: ProblemFault) -> Refused:
    """What the client itself refuses, as a server would."""
    return Refused(
        Problem(
            type="urn:reflectory:invalid-request",
            title="The request is not valid",
            status=HTTPStatus.UNPROCESSABLE_ENTITY,
            detail=detail,
            errors=faults,
        )
    )


def check_numbers(body: Any) -> None:
    """Take a body whose numbers can be written as JSON.

    Raises:
        Refused: one of them is NaN or infinite; names each place.
    """
    faults = [
        ProblemFault(path=path, message=f"{value} is no number of JSON; allowed are finite numbers")
        for path, value in _not_finite(body, ())
    ]
    if faults:
        detail = "; ".join(f"{fault.path}: {fault.message}" for fault in faults)
        raise refusal(detail, *faults)


def _not_finite(value: Any, place: tuple[object, ...]) -> Iterator[tuple[str, float]]:
    """Dotted places of the numbers that JSON does not have, and the numbers."""
    if isinstance(value, float):
        if not math.isfinite(value):
            yield ".".join(map(str, place)), value
        return
    parts: Iterator[tuple[object, object]] = iter(())
    if isinstance(value, Mapping):
        parts = iter(cast("Mapping[object, object]", value).items())
    elif isinstance(value, list | tuple):
        parts = enumerate(cast("Sequence[object]", value))
    for name, part in parts:
        yield from _not_finite(part, (*place, name))


def check(response: httpx2.Response) -> None:
    """Take an answer that is a success.

    Raises:
        Busy: it says to come again later.
        Refused: it says no.
    """
    if response.is_success:
        return
    if response.status_code in BUSY_STATUSES:
        raise Busy(response)
    raise Refused(_problem(response))


def check_elsewhere(response: httpx2.Response) -> None:
    """The same of another host, to which the server has sent us."""
    if response.status_code in BUSY_STATUSES:
        raise Busy(response)
    if not response.is_success:
        # Not its URL: that opens the file for everybody.
        raise Refused(
            Problem(
                title="The file was not given out",
                status=response.status_code,
                detail=f"{response.request.url.host}, where the server keeps the file, "
                f"answered HTTP {response.status_code} {response.reason_phrase}",
            )
        )


def _is_problem(response: httpx2.Response) -> bool:
    return response.headers.get("Content-Type", "").partition(";")[0] == _PROBLEM


def _problem(response: httpx2.Response) -> Problem:
    if _is_problem(response):
        return read(Problem, response.content)
    return Problem(
        title=response.reason_phrase,
        status=response.status_code,
        detail=f"{response.request.method} {response.request.url} was answered "
        f"HTTP {response.status_code} {response.reason_phrase}",
    )
