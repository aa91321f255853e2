"""Products of packed rotations by the C++ kernels."""

import ctypes
from collections.abc import Mapping

import torch
from torch import Tensor

from models.kernels.calls import address_of, call
from models.kernels.checks import check, check_range
from models.kernels.structs import RotationArguments, RotationShape

ROTATED: Mapping[torch.dtype, str] = {torch.float32: "float", torch.float64: "double"}
"""What the kernels compute with, and what C++ calls it."""


def rotations_forward(angles: Tensor, partners: Tensor) -> Tensor:
    """The product `[G, n, n]` of K stages of signed angles `[G, K, n]`, of `ROTATED` on the CPU.

    `partners` is `[K, n]`, int64.

    Raises:
        ValueError: a tensor is none of that kind.
    """
    shape = _checked(angles, partners)
    copies, _, size = angles.shape
    product = angles.new_empty(copies, size, size)
    turns = angles.cos().contiguous(), angles.sin().contiguous(), partners.contiguous()
    arguments = RotationArguments(*map(address_of, (*turns, product)))
    call(f"rotations_forward_{ROTATED[angles.dtype]}", shape, arguments)
    return product


def rotations_backward(
    gradient: Tensor, angles: Tensor, partners: Tensor, product: Tensor
) -> Tensor:
    """What reaches the angles `[G, K, n]` from `gradient` `[G, n, n]` of their product.

    Raises:
        ValueError: a tensor is none of that kind.
    """
    shape = _checked(angles, partners)
    square = (shape.copies, shape.size, shape.size)
    check("gradient", gradient, square, angles.dtype)
    check("product", product, square, angles.dtype)
    product = product.contiguous()
    gradient, result = gradient.contiguous(), angles.new_empty(angles.shape)
    turns = angles.cos().contiguous(), angles.sin().contiguous(), partners.contiguous()
    arguments = RotationArguments(*map(address_of, (*turns, product)))
    pointers = tuple(ctypes.c_void_p(tensor.data_ptr()) for tensor in (gradient, result))
    name = f"rotations_backward_{ROTATED[angles.dtype]}"
    call(name, shape, arguments, rest=pointers)
    return result


def rotations_sweep_(matrices: Tensor, angles: Tensor, partners: Tensor) -> None:
    """Turn every stage once to where tr(X Q) is largest with the others as they are, in place.

    Args:
        matrices: X Q `[G, n, n]` for the product Q of the stages; afterwards Q X for the new Q.
        angles: signed, `[G, K, n]`. As `matrices` contiguous and float64.
        partners: `[K, n]`, int64 and contiguous.

    Raises:
        ValueError: a tensor is none of that kind.
    """
    shape = _checked(angles, partners)
    check("angles", angles, angles.shape, torch.float64)
    check("matrices", matrices, (shape.copies, shape.size, shape.size), torch.float64)
    for name, tensor in (("angles", angles), ("matrices", matrices), ("partners", partners)):
        if not tensor.is_contiguous():
            raise ValueError(f"{name} is not contiguous; a sweep changes tensors in place")
    tensors = (partners, matrices, angles)
    pointers = tuple(ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors)
    call("rotations_sweep", shape, rest=pointers)


def _checked(angles: Tensor, partners: Tensor) -> RotationShape:
    """The sizes, if the tensors have them and the partners are coordinates."""
    if angles.dim() != 3 or angles.dtype not in ROTATED:
        found = f"{angles.dtype} {list(angles.shape)}"
        raise ValueError(f"angles are {found}; the kernel takes [G, K, n] of {list(ROTATED)}")
    copies, stages, size = angles.shape
    check("angles", angles, angles.shape, angles.dtype)
    check("partners", partners, (stages, size), torch.int64)
    check_range("partners", partners, 0, size - 1)
    return RotationShape(copies, stages, size, torch.get_num_threads())
