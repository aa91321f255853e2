"""A call without its network: a generator of the steps that it takes, which a transport performs.

    Steps[T]    what a call does until it has its answer, a T
    Stream[T]   the same of a call that gives one T after the other

A step is sent out by `yield`, and its outcome comes back. `call` and `stream` make methods of such
generators: on a client that waits they return answers, on one that is awaited they return
coroutines, and the types say which.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator, Mapping
from dataclasses import dataclass
from functools import update_wrapper
from inspect import Signature, signature
from pathlib import Path
from typing import (
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Self,
    TypeAlias,
    TypeVar,
    cast,
    get_args,
    overload,
)

import httpx2

_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class Form:
    """A form with files."""

    fields: Mapping[str, str]
    files: Mapping[str, Path]
    told: Callable[[int, int | None], None]
    """Called with the bytes so far and in all."""


@dataclass(frozen=True, kw_only=True)
class Send:
    """One request, sent once; its outcome is the whole response, if it is a success."""

    method: str
    path: str
    body: Any = None
    params: Mapping[str, str] | None = None
    headers: Mapping[str, str] | None = None
    form: Form | None = None


@dataclass(frozen=True, kw_only=True)
class Open:
    """A GET whose answer is read in pieces; its outcome is the `Opened`."""

    url: str
    """A path on the server, or the URL of another host that it has sent us to."""
    headers: Mapping[str, str]
    elsewhere: bool = False
    """Whether it is another host, to which the key is not shown."""
    events: bool = False
    """Whether pieces are events, and not bytes."""


@dataclass(frozen=True)
class Opened:
    """An answer that is being read."""

    response: httpx2.Response
    pieces: Any
    """Iterator of the transport's own kind."""
    close: Callable[[], Any]


@dataclass(frozen=True)
class Next:
    """The next piece of an answer; its outcome is null after the last."""

    opened: Opened


@dataclass(frozen=True)
class Close:
    """Close an answer before its end. Those that are left open are closed with the call."""

    opened: Opened


@dataclass(frozen=True)
class Sleep:
    """Let time pass."""

    seconds: float


@dataclass(frozen=True)
class Repeat:
    """Steps that are tried again after transient faults, see `again`."""

    work: "Callable[[], Steps[Any]]"
    patience: float


@dataclass(frozen=True)
class Item(Generic[_T]):
    """What a stream gives; its outcome is null."""

    value: _T


Step: TypeAlias = Send | Open | Next | Close | Sleep | Repeat

Steps: TypeAlias = Generator[Step, Any, _T]
Stream: TypeAlias = Generator[Step | Item[_T], Any, None]


def send(request: Send) -> Steps[httpx2.Response]:
    """The whole response to a request, which is sent once."""
    return (yield request)


def opened(request: Open) -> Steps[Opened]:
    """An answer that is read in pieces."""
    return (yield request)


def repeated(work: Callable[[], Steps[_T]], patience: float) -> Steps[_T]:
    """What some steps give, tried again while the patience lasts."""
    return (yield Repeat(work, patience))


def each(stream: Stream[_T], do: Callable[[_T], Steps[None] | None]) -> Steps[None]:
    """Perform a stream; what `do` makes of each item is performed in between."""
    outcome: Any = None
    fault: Exception | None = None
    while True:
        try:
            step = stream.send(outcome) if fault is None else stream.throw(fault)
        except StopIteration:
            return
        outcome, fault = None, None
        if isinstance(step, Item):
            more = do(step.value)
            if more is not None:
                yield from more
            continue
        try:
            outcome = yield step
        except Exception as error:
            fault = error


def gathered(stream: Stream[_T]) -> Steps[list[_T]]:
    """All that a stream gives."""
    found: list[_T] = []
    yield from each(stream, found.append)
    return found


class Waits(ABC):
    """Whatever performs calls at once."""

    @abstractmethod
    def perform(self, steps: Steps[_T]) -> _T:
        """The answer of a call, when it is there."""
        ...

    @abstractmethod
    def give(self, stream: Stream[_T]) -> Iterator[_T]:
        """What a call gives, one after the other."""
        ...


class Awaits(ABC):
    """Whatever performs calls while others are performed."""

    @abstractmethod
    def perform(self, steps: Steps[_T]) -> Coroutine[Any, Any, _T]:
        """The answer of a call, to be awaited."""
        ...

    @abstractmethod
    def give(self, stream: Stream[_T]) -> AsyncIterator[_T]:
        """What a call gives, for `async for`."""
        ...


class Method:
    """What both kinds of methods share: they look like the function that describes them."""

    def __init__(
        self, describe: Callable[..., Any], looks_like: Callable[..., Any] | None = None
    ) -> None:
        self._describe = describe
        self._looks_like = looks_like or describe
        update_wrapper(cast("Callable[..., Any]", self), self._looks_like)

    @property
    def __signature__(self) -> Signature:
        found = signature(self._looks_like)
        return found.replace(return_annotation=self._given(found.return_annotation))

    def _given(self, annotation: Any) -> Any:
        return get_args(annotation)[2]

    def _bound(self, owner: Any, perform: Callable[[Any], Any]) -> Callable[..., Any]:
        def method(*args: Any, **given: Any) -> Any:
            return perform(self._describe(owner, *args, **given))

        update_wrapper(method, self._looks_like)
        own = list(self.__signature__.parameters.values())[1:]
        method.__signature__ = self.__signature__.replace(parameters=own)  # pyright: ignore[reportFunctionMemberAccess]
        return method


class call(Method, Generic[_P, _T]):  # noqa: N801 -- used as a decorator
    """A method that answers once."""

    def __init__(self, describe: Callable[Concatenate[Any, _P], Steps[_T]]) -> None:
        super().__init__(describe)
        self.steps = describe
        """Its description, for calls that are made of others."""

    @overload
    def __get__(self, owner: None, kind: type, /) -> Self: ...
    @overload
    def __get__(self, owner: Waits, kind: type, /) -> Callable[_P, _T]: ...
    @overload
    def __get__(self, owner: Awaits, kind: type, /) -> Callable[_P, Coroutine[Any, Any, _T]]: ...
    def __get__(self, owner: Any, kind: type, /) -> Any:
        """The method of a client."""
        return self if owner is None else self._bound(owner, owner.perform)

    def __call__(self, owner: Any, /, *args: _P.args, **given: _P.kwargs) -> Any:
        """The same, for `Client.study(client, ...)`."""
        return owner.perform(self.steps(owner, *args, **given))


class stream(Method, Generic[_P, _T]):  # noqa: N801 -- used as a decorator
    """A method that gives one thing after the other."""

    def __init__(self, describe: Callable[Concatenate[Any, _P], Stream[_T]]) -> None:
        super().__init__(describe)
        self.steps = describe
        """Its description, for calls that are made of others."""

    @overload
    def __get__(self, owner: None, kind: type, /) -> Self: ...
    @overload
    def __get__(self, owner: Waits, kind: type, /) -> Callable[_P, Iterator[_T]]: ...
    @overload
    def __get__(self, owner: Awaits, kind: type, /) -> Callable[_P, AsyncIterator[_T]]: ...
    def __get__(self, owner: Any, kind: type, /) -> Any:
        """The method of a client."""
        return self if owner is None else self._bound(owner, owner.give)

    def __call__(self, owner: Any, /, *args: _P.args, **given: _P.kwargs) -> Any:
        """The same, for `Client.studies(client)`."""
        return owner.give(self.steps(owner, *args, **given))

    def _given(self, annotation: Any) -> Any:
        (item,) = get_args(get_args(get_args(annotation)[0])[-1])
        return Iterator[item]
