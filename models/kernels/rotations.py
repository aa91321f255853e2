"""Products of packed rotations by the C++ kernels."""

import ctypes
from collections.abc import Mapping

import torch
from torch import Tensor

from models.kernels.calls import address_of, call

ROTATED: Mapping[torch.dtype, str] = {torch.float32: "float", torch.float64: "double"}
"""What the kernels compute with, and what C++ calls it."""


class _Shape(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("copies", "stages", "size", "threads")]


class _Arguments(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("cos", "sin", "partners", "product")]


def rotations_forward(angles: Tensor, partners: Tensor) -> Tensor:
    """The product `[G, n, n]` of K stages of signed angles `[G, K, n]`, of `ROTATED` on the CPU.

    `partners` is `[K, n]`, int64.
    """
    copies, _, size = angles.shape
    product = angles.new_empty(copies, size, size)
    turns = angles.cos().contiguous(), angles.sin().contiguous(), partners.contiguous()
    arguments = _Arguments(*map(address_of, (*turns, product)))
    call(f"rotations_forward_{ROTATED[angles.dtype]}", _shape(angles), arguments)
    return product


def rotations_backward(
    gradient: Tensor, angles: Tensor, partners: Tensor, product: Tensor
) -> Tensor:
    """What reaches the angles `[G, K, n]` from `gradient` `[G, n, n]` of their product."""
    gradient, result = gradient.contiguous(), angles.new_empty(angles.shape)
    turns = angles.cos().contiguous(), angles.sin().contiguous(), partners.contiguous()
    arguments = _Arguments(*map(address_of, (*turns, product)))
    pointers = tuple(ctypes.c_void_p(tensor.data_ptr()) for tensor in (gradient, result))
    name = f"rotations_backward_{ROTATED[angles.dtype]}"
    call(name, _shape(angles), arguments, rest=pointers)
    return result


def rotations_sweep_(matrices: Tensor, angles: Tensor, partners: Tensor) -> None:
    """Turn every stage once to where tr(X Q) is largest with the others as they are, in place.

    Args:
        matrices: X Q `[G, n, n]` for the product Q of the stages; afterwards Q X for the new Q.
        angles: signed, `[G, K, n]`. As `matrices` contiguous and float64.
        partners: `[K, n]`, int64 and contiguous.
    """
    tensors = (partners, matrices, angles)
    pointers = tuple(ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors)
    call("rotations_sweep", _shape(angles), rest=pointers)


def _shape(angles: Tensor) -> _Shape:
    return _Shape(*angles.shape, torch.get_num_threads())
