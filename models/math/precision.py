"""In which precision factors are made, and what is too small to be computed with."""

from collections.abc import Generator
from contextlib import contextmanager

import torch
from torch import Tensor


def raised(tensor: Tensor) -> Tensor:
    """At least single precision: solvers have no half types, and long products would lose W."""
    return tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor


@contextmanager
def denormals_as_zero() -> Generator[None]:
    """Within it, CPU operations that this thread starts take numbers below 1.2e-38 for 0.

    What vanishes along a long sequence ends as such numbers, with which processors compute up to a
    hundred times as slowly. Our kernels do so by themselves.
    """
    # torch tells only by computing how it is set.
    before = float(torch.tensor(2.0**-140) * 0.5) == 0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)
