"""Methods of a study or a trial that are calls of its client, without what names it."""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from inspect import Signature
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from service.client.transport.steps import Awaits, Method, Waits, call, stream

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Placed(Protocol):
    """Whatever calls are made for."""

    @property
    def client(self) -> Any:
        """Who makes them."""
        ...

    @property
    def place(self) -> tuple[Any, ...]:
        """Their first arguments."""
        ...

    def taken(self, answer: Any) -> Any:
        """What a call's answer is given on as."""
        ...


class _Mirrored(Method, Generic[_P, _T]):
    """What the kinds of mirrored calls share."""

    def __init__(self, of: "call[Any, Any] | stream[Any, Any]", *, named_by: int) -> None:
        def describe(owner: Placed, /, *args: Any, **given: Any) -> Any:
            return of.steps(owner.client, *owner.place, *args, **given)

        super().__init__(describe, of.steps)
        self._of = of
        self._named_by = named_by

    @property
    def __signature__(self) -> Signature:
        found = self._of.__signature__
        own, *others = found.parameters.values()
        return found.replace(parameters=[own, *others[self._named_by :]])


class _Call(_Mirrored[_P, _T]):
    def __init__(self, of: Any, *, named_by: int) -> None:
        super().__init__(of, named_by=named_by)
        describe = self._describe

        def taken(owner: Placed, /, *args: Any, **given: Any) -> Any:
            return owner.taken((yield from describe(owner, *args, **given)))

        self._describe = taken

    @overload
    def __get__(self, owner: None, kind: type, /) -> Self: ...
    @overload
    def __get__(self, owner: Waits, kind: type, /) -> Callable[_P, _T]: ...
    @overload
    def __get__(self, owner: Awaits, kind: type, /) -> Callable[_P, Coroutine[Any, Any, _T]]: ...
    def __get__(self, owner: Any, kind: type, /) -> Any:
        """The method of a study or a trial."""
        return self if owner is None else self._bound(owner, owner.perform)

    def __call__(self, owner: Any, /, *args: _P.args, **given: _P.kwargs) -> Any:
        """The same, for `Study.front(study)`."""
        return owner.perform(self._describe(owner, *args, **given))


class _Stream(_Mirrored[_P, _T]):
    @overload
    def __get__(self, owner: None, kind: type, /) -> Self: ...
    @overload
    def __get__(self, owner: Waits, kind: type, /) -> Callable[_P, Iterator[_T]]: ...
    @overload
    def __get__(self, owner: Awaits, kind: type, /) -> Callable[_P, AsyncIterator[_T]]: ...
    def __get__(self, owner: Any, kind: type, /) -> Any:
        """The method of a study or a trial."""
        return self if owner is None else self._bound(owner, owner.give)

    def __call__(self, owner: Any, /, *args: _P.args, **given: _P.kwargs) -> Any:
        """The same, for `Study.watch(study)`."""
        return owner.give(self._describe(owner, *args, **given))


def of_study(of: call[Concatenate[str, _P], _T]) -> _Call[_P, _T]:
    """A call as a method of a study."""
    return _Call(of, named_by=1)


def of_trial(of: call[Concatenate[str, int, _P], _T]) -> _Call[_P, _T]:
    """A call as a method of a trial."""
    return _Call(of, named_by=2)


def stream_of_study(of: stream[Concatenate[str, _P], _T]) -> _Stream[_P, _T]:
    """A call that gives one thing after the other, as a method of a study."""
    return _Stream(of, named_by=1)


def stream_of_trial(of: stream[Concatenate[str, int, _P], _T]) -> _Stream[_P, _T]:
    """A call that gives one thing after the other, as a method of a trial."""
    return _Stream(of, named_by=2)


MIRRORED = (_Call, _Stream, call, stream)
"""Kinds of methods, which are no fields of a document."""
