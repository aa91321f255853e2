"""The connection to a server that performs calls while others are performed."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, closing
from functools import partial
from http import HTTPStatus
from typing import Any, Self, TypeVar

import httpx2

from service.client.transport.backoff import again_awaited
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
    Awaits,
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
)
from service.client.transport.upload_bodies import READING_SECONDS, form_files

_T = TypeVar("_T")


class AsyncConnection(Described, Awaits):
    """A server, the key to it, and how long to be patient with it; for one event loop."""

    def __init__(
        self,
        server: str = "http://127.0.0.1:8080",
        *,
        key: str | None = None,
        timeout: float = 60.0,
        patience: float = PATIENCE,
    ) -> None:
        """Connect to `server` when it is first needed; the arguments are those of `Client`.

        Raises:
            Unreachable: `server` is no URL.
            ValueError: the key has characters that no key has.
        """
        self.server = server.rstrip("/")
        self._patience = patience
        self._timeout = timeout
        url = checked_url(self.server)
        self._http = httpx2.AsyncClient(
            base_url=self.server,
            headers=credentials(key),
            timeout=timeout,
            trust_env=url.host not in LOOPBACK,
        )
        self._how: Mapping[
            type[Step], Callable[[Any, AsyncExitStack], Coroutine[Any, Any, Any]]
        ] = {
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

    async def __aenter__(self) -> Self:
        """Use the client in an `async with` statement, which closes it."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connections."""
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def perform(self, steps: Steps[_T]) -> _T:
        """The answer of a call, to be awaited."""
        async with AsyncExitStack() as answers:
            return await self._perform(steps, answers)

    async def give(self, stream: Stream[_T]) -> AsyncIterator[_T]:
        """What a call gives, for `async for`."""
        async with AsyncExitStack() as answers:
            answers.enter_context(closing(stream))
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
                    outcome = await self._how[type(step)](step, answers)
                except Exception as error:
                    fault = error

    async def _perform(self, steps: Steps[_T], answers: AsyncExitStack) -> _T:
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
                    outcome = await self._how[type(step)](step, answers)
                except Exception as error:
                    fault = error

    async def _send(self, request: Send, _answers: AsyncExitStack) -> httpx2.Response:
        ask = partial(
            self._http.request,
            request.method,
            request.path,
            params=request.params,
            headers=request.headers,
        )
        if request.form is None:
            response = await ask(json=request.body)
        else:
            timeout = httpx2.Timeout(self._timeout, read=READING_SECONDS)
            with form_files(request.form.files, request.form.told) as files:
                response = await ask(data=dict(request.form.fields), files=files, timeout=timeout)
        check(response)
        return response

    async def _open(self, request: Open, answers: AsyncExitStack) -> Opened:
        client = self._http
        if request.elsewhere:
            trusted = httpx2.URL(request.url).host not in LOOPBACK
            client = await answers.enter_async_context(
                httpx2.AsyncClient(timeout=self._timeout, trust_env=trusted)
            )
        response = await answers.enter_async_context(
            client.stream("GET", request.url, headers=dict(request.headers))
        )
        if request.elsewhere:
            check_elsewhere(response)
        elif not response.is_success and response.status_code != HTTPStatus.TEMPORARY_REDIRECT:
            await response.aread()
            check(response)
        pieces = httpx2.EventSource(response) if request.events else response.aiter_raw()
        return Opened(response, aiter(pieces), response.aclose)

    async def _repeat(self, request: Repeat, answers: AsyncExitStack) -> Any:
        async def work() -> Any:
            async with AsyncExitStack() as own:
                found = await self._perform(request.work(), own)
                # What is still open is read by the steps that follow.
                answers.push_async_exit(own.pop_all())
                return found

        return await again_awaited(work, request.patience)


async def _next(request: Next, _answers: AsyncExitStack) -> Any:
    return await anext(request.opened.pieces, None)


async def _close(request: Close, _answers: AsyncExitStack) -> None:
    await request.opened.close()


async def _sleep(request: Sleep, _answers: AsyncExitStack) -> None:
    await asyncio.sleep(request.seconds)
