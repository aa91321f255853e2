"""The connection to a server: what is asked, again where that is safe, and what answers mean."""

import os
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, Protocol, Self, TypeVar

import httpx2
from pydantic import ValidationError

from service.client.backoff import BUSY_STATUSES, TRANSIENT, Busy, NotYet, again
from service.client.errors import ClientError, Refused, Unfinished, Unreachable
from service.client.reading import read
from service.http.problem_document import Problem

_I = TypeVar("_I", covariant=True)
_T = TypeVar("_T")

PATIENCE = 3.0
"""Seconds over which a request is tried again, unless others are given."""
_PAGE = 100
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
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


class Connection:
    """A server, the key to it, and how long to be patient with it."""

    def __init__(
        self,
        server: str = "http://127.0.0.1:8080",
        *,
        key: str | None = None,
        timeout: float = 60.0,
        patience: float = PATIENCE,
    ) -> None:
        """Connect to `server` when it is first needed.

        Args:
            server: base URL.
            key: an API key; by default that of the environment's `REFLECTORY_KEY`, if any. It is
                sent to `server` alone, and shown nowhere.
            timeout: seconds without a byte after which a connection counts as broken.
            patience: seconds over which a request is tried again after faults on the way.

        Raises:
            Unreachable: `server` is no URL.
            ValueError: the key has characters that no key has.
        """
        self.server = server.rstrip("/")
        self._patience = patience
        self._timeout = timeout
        try:
            url = httpx2.URL(self.server)
        except httpx2.InvalidURL as error:
            raise Unreachable(f"{server!r} is no URL: {error}") from error
        if url.userinfo:
            raise Unreachable(
                "the server's URL holds a password; a key belongs into REFLECTORY_KEY"
            )
        if url.scheme not in ("http", "https") or not url.host:
            raise Unreachable(f"{server!r} is no URL of a server; write http://HOST:PORT")
        # A proxy that the environment names cannot lead to this machine's own loopback.
        self._http = httpx2.Client(
            base_url=self.server,
            headers=_credentials(key),
            timeout=timeout,
            trust_env=url.host not in _LOOPBACK,
        )

    def __repr__(self) -> str:
        """The server, and never the key."""
        return f"{type(self).__name__}({self.server!r})"

    def __enter__(self) -> Self:
        """Use the client in a `with` statement, which closes it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connections."""
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _ask(
        self,
        kind: type[_T],
        method: str,
        path: str,
        *,
        body: Any = None,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool = True,
    ) -> _T:
        """The answer to a request, as a document."""
        answer = self._request(
            method, path, body=body, params=params, headers=headers, repeatable=repeatable
        )
        return self._read(kind, answer)

    def _text(self, path: str, **params: str) -> str:
        return self._request("GET", path, params=params).text

    def _pages(
        self, kind: type[_Page[_I]], path: str, params: Mapping[str, str | None]
    ) -> Iterator[_I]:
        """The items of all pages of a list; null parameters are left out."""
        query = {name: value for name, value in params.items() if value is not None}
        query["limit"] = str(_PAGE)
        while True:
            page = self._ask(kind, "GET", path, params=query)
            yield from page.items
            if page.next_cursor is None:
                return
            query["cursor"] = page.next_cursor

    def _remove(self, path: str) -> None:
        """Delete what is there; gone already is as good, where only the answer was lost."""
        tries = 0

        def send() -> None:
            nonlocal tries
            tries += 1
            try:
                self._check(self._http.delete(path))
            except Refused as error:
                if tries == 1 or error.problem.status != HTTPStatus.NOT_FOUND:
                    raise

        self._again(send)

    def _request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool = True,
    ) -> httpx2.Response:
        def send() -> httpx2.Response:
            response = self._http.request(method, path, json=body, params=params, headers=headers)
            self._check(response)
            return response

        return self._again(send, patience=self._patience if repeatable else 0.0)

    @contextmanager
    def _stream(self, path: str, *, headers: Mapping[str, str]) -> Generator[httpx2.Response]:
        with self._http.stream("GET", path, headers=headers) as response:
            if not response.is_success and response.status_code != HTTPStatus.TEMPORARY_REDIRECT:
                response.read()
                self._check(response)
            yield response

    @contextmanager
    def _stream_elsewhere(
        self, url: str, *, headers: Mapping[str, str]
    ) -> Generator[httpx2.Response]:
        """What another host gives that the server has sent us to; the key is not shown to it."""
        trusted = httpx2.URL(url).host not in _LOOPBACK
        with (
            httpx2.Client(timeout=self._timeout, trust_env=trusted) as client,
            client.stream("GET", url, headers=headers) as response,
        ):
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
            yield response

    def _read(self, kind: type[_T], response: httpx2.Response) -> _T:
        try:
            return read(kind, response.content)
        except ValidationError as error:
            raise Unreachable(
                f"what answers at {self.server} is no Reflectory server that this client knows: "
                f"{response.request.method} {response.request.url.path} brought no "
                f"{kind.__name__.lower()}"
            ) from error

    def _again(self, work: Callable[[], _T], *, patience: float | None = None) -> _T:
        try:
            return again(work, self._patience if patience is None else patience)
        except TRANSIENT as fault:
            raise self._unreachable(fault) from fault

    def _until_made(self, look: Callable[[], _T], unfinished: str, *, patience: float) -> _T:
        """What `look` returns, which raises `NotYet` while the server makes it.

        Raises:
            Unfinished: it was not made within `patience` seconds.
        """
        try:
            return again(look, patience)
        except NotYet as missing:
            raise Unfinished(unfinished) from missing

    def _check(self, response: httpx2.Response) -> None:
        if response.is_success:
            return
        if response.status_code in BUSY_STATUSES:
            raise Busy(response)
        raise Refused(_problem(response))

    def _unreachable(self, fault: Exception) -> ClientError:
        """The error for a fault that stayed: a refusal where the server gave its reason."""
        if isinstance(fault, Busy) and _is_problem(fault.response):
            return Refused(_problem(fault.response))
        return Unreachable(f"no Reflectory server answers at {self.server}: {fault}")


def _credentials(key: str | None) -> dict[str, str]:
    """The header that shows a key; none without one."""
    found = (os.environ.get(_KEY_VARIABLE, "") if key is None else key).strip()
    if not found:
        return {}
    if not _KEY.fullmatch(found):
        raise ValueError("the API key holds characters that no key has: spaces, or not ASCII")
    return {"Authorization": f"Bearer {found}"}


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
