"""Products of packed rotations by the C++ kernels."""

import ctypes

import torch
from torch import Tensor

from models.kernels.calls import address_of, call


class _Shape(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("copies", "stages", "size", "threads")]


class _Arguments(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("cos", "sin", "partners", "product")]


def rotations_forward(angles: Tensor, partners: Tensor) -> Tensor:
    """The product `[G, n, n]` of K stages of signed angles `[G, K, n]`, float32 on the CPU.

    `partners` is `[K, n]`, int64.
    """
    copies, _, size = angles.shape
    product = angles.new_empty(copies, size, size)
    turns = angles.cos().contiguous(), angles.sin().contiguous(), partners.contiguous()
    arguments = _Arguments(*map(address_of, (*turns, product)))
    call("rotations_forward", _shape(angles), arguments)
    return product


def rotations_backward(
    gradient: Tensor, angles: Tensor, partners: Tensor, product: Tensor
) -> Tensor:
    """What reaches the angles `[G, K, n]` from `gradient` `[G, n, n]` of their product."""
    gradient, result = gradient.contiguous(), torch.empty(angles.shape)
    turns = angles.cos().contiguous(), angles.sin().contiguous(), partners.contiguous()
    arguments = _Arguments(*map(address_of, (*turns, product)))
    pointers = tuple(ctypes.c_void_p(tensor.data_ptr()) for tensor in (gradient, result))
    call("rotations_backward", _shape(angles), arguments, rest=pointers)
    return result


def _shape(angles: Tensor) -> _Shape:
    return _Shape(*angles.shape, torch.get_num_threads())
