"""Singular value decompositions by reflectors as diagonal plus low rank, as a torch operator."""

import ctypes
from typing import Any, cast

import torch
from torch import Tensor

from models.kernels.calls import address_of, call

_library = cast(Any, torch.library)

_library.define("reflectory::svd_factors", "(Tensor u, Tensor v, Tensor sigma) -> (Tensor, Tensor)")
_library.define(
    "reflectory::svd_factors_backward",
    "(Tensor grad_left, Tensor grad_right, Tensor u, Tensor v, Tensor sigma) "
    "-> (Tensor, Tensor, Tensor)",
)


class _Shape(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_int64) for name in ("copies", "size", "u_count", "v_count", "threads")
    ]


class _Arguments(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("u", "v", "sigma", "left", "right")]


class _Gradients(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("left", "right", "u", "v", "sigma")]


def svd_factors(u: Tensor, v: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor]:
    """L `[G, n, m2 + m1]` and R `[G, m2 + m1, n]` of `W = diag(sigma) + L R` (eq. 6).

    Args:
        u: `[G, m1, n]`, rows of any length, float32 on the CPU; a row of zeros is no reflection.
        v: `[G, m2, n]`, alike.
        sigma: `[G, n]`.
    """
    return torch.ops.reflectory.svd_factors(u, v, sigma)


def _run(u: Tensor, v: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor]:
    left, right = _results(u, v, sigma)
    given = [tensor.contiguous() for tensor in (u, v, sigma)]
    arguments = _Arguments(*map(address_of, (*given, left, right)))
    call("svd_factors_forward", _shape(u, v), arguments)
    return left, right


def _results(u: Tensor, v: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG001 -- an operator's signature
    copies, m1, size = u.shape
    rank = m1 + v.shape[1]
    return u.new_empty(copies, size, rank), u.new_empty(copies, rank, size)


def _run_backward(
    grad_left: Tensor, grad_right: Tensor, u: Tensor, v: Tensor, sigma: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    given = [tensor.contiguous() for tensor in (u, v, sigma, grad_left, grad_right)]
    results = _gradients(grad_left, grad_right, u, v, sigma)
    arguments = _Arguments(*map(address_of, given[:3]), None, None)
    gradients = _Gradients(*map(address_of, (*given[3:], *results)))
    call("svd_factors_backward", _shape(u, v), arguments, gradients)
    return results


def _gradients(
    grad_left: Tensor,  # noqa: ARG001 -- an operator's signature
    grad_right: Tensor,  # noqa: ARG001
    u: Tensor,
    v: Tensor,
    sigma: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    return u.new_empty(u.shape), v.new_empty(v.shape), sigma.new_empty(sigma.shape)


def _setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:  # noqa: ARG001
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, grad_left: Tensor, grad_right: Tensor) -> tuple[Tensor, ...]:
    return torch.ops.reflectory.svd_factors_backward(grad_left, grad_right, *ctx.saved_tensors)


_library.impl("reflectory::svd_factors", "cpu", _run)
_library.impl("reflectory::svd_factors_backward", "cpu", _run_backward)
_library.register_fake("reflectory::svd_factors", _results)
_library.register_fake("reflectory::svd_factors_backward", _gradients)
_library.register_autograd("reflectory::svd_factors", _backward, setup_context=_setup_context)


def _shape(u: Tensor, v: Tensor) -> _Shape:
    copies, m1, size = u.shape
    return _Shape(copies, size, m1, v.shape[1], torch.get_num_threads())
