"""How many threads NumPy's matrices take."""

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController  # pyright: ignore[reportMissingTypeStubs]


def one_blas_thread() -> AbstractContextManager[object]:
    """One: matrices of a few hundred rows gain little from more, which trials train on."""
    limit: Any = _controller().limit  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return limit(limits=1, user_api="blas")


@cache
def _controller() -> ThreadpoolController:
    # Finding the libraries takes milliseconds. NumPy's is there before anybody asks.
    return ThreadpoolController()
