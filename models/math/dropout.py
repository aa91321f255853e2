"""Dropout whose masks are each member's own where several networks are computed in one call."""

import contextlib
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

_generators: ContextVar[Sequence[torch.Generator] | None] = ContextVar("generators", default=None)


@contextlib.contextmanager
def drawn_by(generators: Sequence[torch.Generator]) -> Generator[None]:
    """Within the context each member of a stack draws from a generator of its own."""
    token = _generators.set(generators)
    try:
        yield
    finally:
        _generators.reset(token)


def dropout(x: Tensor, rate: float, *, training: bool = True) -> Tensor:
    """As torch's own, from whose generator it draws; in a stack each member from its own.

    A member that is alone has the same masks, if both generators began with one seed.
    """
    if not training or rate == 0 or _generators.get() is None:
        return F.dropout(x, rate, training)
    return x * _mask(x, rate).div_(1 - rate)


def dropout_mask(x: Tensor, rate: float) -> Tensor:
    """What `dropout` multiplies x by, unscaled: 0 at the given rate, else 1, in x's shape."""
    if _generators.get() is None:
        return torch.empty_like(x).bernoulli_(1 - rate)
    return _mask(x, rate)


@torch.library.custom_op("reflectory::dropout_mask", mutates_args=())
def _mask(x: Tensor, rate: float) -> Tensor:
    return torch.empty_like(x).bernoulli_(1 - rate)


def _of_members(
    info: Any, in_dims: tuple[int | None, None], x: Tensor, rate: float
) -> tuple[Tensor, int]:
    generators, axis = _generators.get(), in_dims[0]
    if generators is None or len(generators) != info.batch_size:
        raise ValueError(f"{info.batch_size} members draw masks, and each needs a generator")
    members = [x if axis is None else x.select(axis, place) for place in range(info.batch_size)]
    # torch refuses or repeats what is drawn while members are carried; these draw by themselves.
    with _without_vmap():
        masks = [
            torch.empty_like(one).bernoulli_(1 - rate, generator=generator)
            for one, generator in zip(members, generators, strict=True)
        ]
    return torch.stack(masks), 0


def _without_vmap() -> AbstractContextManager[object]:
    inner: Any = torch._C  # pyright: ignore[reportPrivateUsage] -- no public way
    mode = inner.DispatchKeySet(inner.DispatchKey.FuncTorchVmapMode)
    return inner._ExcludeDispatchKeyGuard(mode)


_mask.register_vmap(_of_members)  # pyright: ignore[reportUnknownMemberType] -- untyped
