"""What is looked at before a kernel is given addresses: a wrong tensor there is a crash."""

from collections.abc import Sequence
from typing import NoReturn

import torch
from torch import Tensor


def check(name: str, tensor: Tensor, shape: Sequence[int], dtype: torch.dtype) -> None:
    """Raise unless a tensor is as a kernel reads it.

    Raises:
        ValueError: its shape, dtype or device is another; the message names both.
    """
    if tensor.shape != shape or tensor.dtype != dtype or not tensor.is_cpu or tensor.is_neg():
        _refuse(name, tensor, shape, dtype)


def check_range(name: str, tensor: Tensor, low: int, high: int) -> None:
    """Raise unless every number of a tensor lies in a range, both ends included.

    Raises:
        ValueError: one does not.
    """
    if not tensor.numel():
        return
    least, most = (int(end) for end in torch.aminmax(tensor))
    if least < low or most > high:
        raise ValueError(f"{name} has numbers from {least} to {most}; allowed are {low} to {high}")


def _refuse(name: str, tensor: Tensor, shape: Sequence[int], dtype: torch.dtype) -> NoReturn:
    found = f"{tensor.dtype} {list(tensor.shape)} on {tensor.device}"
    if tensor.layout != torch.strided:
        found += f", {tensor.layout}"
    elif tensor.is_neg():
        found += ", a view with the sign turned"
    raise ValueError(f"{name} is {found}; the kernel takes {dtype} {list(shape)} on the CPU")
