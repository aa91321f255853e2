"""The connection to a server that performs calls at once."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from functools import partial
from http import HTTPStatus
from typing import Any, Self, TypeVar

import httpx2

from service.client.transport.backoff import again
from service.client.transport.described import (
    LOOPBACK,
    PATIENCE,
    Described,
    check,
    check_elsewhere,
    checked_url,
    credentials,
)
from service.client.transport.steps import (
    Close,
    Item,
    Next,
    Open,
    Opened,
    Repeat,
    Send,
    Sleep,
    Step,
    Steps,
    Stream,
    Waits,
)
from service.client.transport.upload_bodies import READING_SECONDS, form_files

__all__ = ["PATIENCE", "Connection"]

_T = TypeVar("_T")


class Connection(Described, Waits):
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
        url = checked_url(self.server)
        # A proxy that the environment names cannot lead to this machine's own loopback.
        self._http = httpx2.Client(
            base_url=self.server,
            headers=credentials(key),
            timeout=timeout,
            trust_env=url.host not in LOOPBACK,
        )
        self._how: Mapping[type[Step], Callable[[Any, ExitStack], Any]] = {
            Send: self._send,
            Open: self._open,
            Next: _next,
            Close: _close,
            Sleep: _sleep,
            Repeat: self._repeat,
        }

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

    def perform(self, steps: Steps[_T]) -> _T:
        """The answer of a call, when it is there."""
        with ExitStack() as answers:
            return self._perform(steps, answers)

    def give(self, stream: Stream[_T]) -> Iterator[_T]:
        """What a call gives, one after the other."""
        with ExitStack() as answers, closing(stream):
            outcome: Any = None
            fault: Exception | None = None
            while True:
                try:
                    step = stream.send(outcome) if fault is None else stream.throw(fault)
                except StopIteration:
                    return
                outcome, fault = None, None
                if isinstance(step, Item):
                    yield step.value
                    continue
                try:
                    outcome = self._how[type(step)](step, answers)
                except Exception as error:
                    fault = error

    def _perform(self, steps: Steps[_T], answers: ExitStack) -> _T:
        # Also where Ctrl-C ends the waiting: what the steps opened is closed then.
        with closing(steps):
            outcome: Any = None
            fault: Exception | None = None
            while True:
                try:
                    step = steps.send(outcome) if fault is None else steps.throw(fault)
                except StopIteration as end:
                    return end.value
                outcome, fault = None, None
                try:
                    outcome = self._how[type(step)](step, answers)
                except Exception as error:
                    fault = error

    def _send(self, request: Send, _answers: ExitStack) -> httpx2.Response:
        ask = partial(
            self._http.request,
            request.method,
            request.path,
            params=request.params,
            headers=request.headers,
        )
        if request.form is None:
            response = ask(json=request.body)
        else:
            timeout = httpx2.Timeout(self._timeout, read=READING_SECONDS)
            with form_files(request.form.files, request.form.told) as files:
                response = ask(data=dict(request.form.fields), files=files, timeout=timeout)
        check(response)
        return response

    def _open(self, request: Open, answers: ExitStack) -> Opened:
        client = self._http
        if request.elsewhere:
            trusted = httpx2.URL(request.url).host not in LOOPBACK
            client = answers.enter_context(httpx2.Client(timeout=self._timeout, trust_env=trusted))
        response = answers.enter_context(
            client.stream("GET", request.url, headers=dict(request.headers))
        )
        if request.elsewhere:
            check_elsewhere(response)
        elif not response.is_success and response.status_code != HTTPStatus.TEMPORARY_REDIRECT:
            response.read()
            check(response)
        pieces = httpx2.EventSource(response) if request.events else response.iter_raw()
        return Opened(response, iter(pieces), response.close)

    def _repeat(self, request: Repeat, answers: ExitStack) -> Any:
        def work() -> Any:
            with ExitStack() as own:
                found = self._perform(request.work(), own)
                # What is still open is read by the steps that follow.
                answers.push(own.pop_all())
                return found

        return again(work, request.patience)


def _next(request: Next, _answers: ExitStack) -> Any:
    return next(request.opened.pieces, None)


def _close(request: Close, _answers: ExitStack) -> None:
    request.opened.close()


def _sleep(request: Sleep, _answers: ExitStack) -> None:
    time.sleep(request.seconds)
