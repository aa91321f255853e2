"""Which backends there are, and what the user says about them."""

import os
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, ParamSpec, TypeAlias, TypeVar, cast, get_args

import torch
from torch import Tensor

from models.kernels.library import library

Backend: TypeAlias = Literal["cpp", "triton", "vendor", "graph", "torch"]
"""Our kernels on CPUs, those on GPUs, torch's recurrent ones, steps in CUDA graphs, torch's single
operations."""

P = ParamSpec("P")
T = TypeVar("T")

_preferred: ContextVar[Backend | None] = ContextVar("_preferred", default=None)


@contextmanager
def prefer(backend: Backend) -> Generator[None]:
    """Have a backend taken wherever it computes the same, if the environment names none."""
    token = _preferred.set(backend)
    try:
        yield
    finally:
        _preferred.reset(token)


def asked_once(function: Callable[P, T]) -> Callable[P, T]:
    """What is traced asks once, and keeps the answer.

    As `torch.compiler.assume_constant_result`, which imports all of the tracer for this one line:
    half of the time that a process takes to start.
    """
    setattr(function, "_dynamo_marked_constant", True)  # noqa: B010 -- not in the type
    return function


@asked_once
def kernels_are_built() -> bool:
    """Whether our kernels are there to be called; the first question builds them."""
    return library() is not None


@asked_once
def wanted_backend() -> Backend | None:
    """The backend that `REFLECTORY_BACKEND` in the environment names, or else one preferred.

    Raises:
        ValueError: there is none of that name.
    """
    wanted = os.environ.get("REFLECTORY_BACKEND")
    if wanted is None:
        return _preferred.get()
    if wanted not in get_args(Backend):
        allowed = ", ".join(get_args(Backend))
        raise ValueError(f"REFLECTORY_BACKEND is {wanted!r}; allowed are {allowed}")
    return cast(Any, wanted)


def kernels_take(tensor: Tensor, dtypes: Collection[torch.dtype] = (torch.float32,)) -> bool:
    """Whether our kernels compute with such a tensor, and the user leaves them to.

    `dtypes` are those that the kernels in question know.
    """
    return (
        tensor.device.type == "cpu"
        and tensor.dtype in dtypes
        and wanted_backend() in (None, "cpp")
        and kernels_are_built()
    )
