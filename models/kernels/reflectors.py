"""Singular value decompositions by reflectors, as diagonal plus low rank or whole."""

from typing import Any, cast

import torch
from torch import Tensor

from models.kernels.calls import address_of, call
from models.kernels.checks import check
from models.kernels.members import Rule, folded, unfolded
from models.kernels.structs import SvdArguments, SvdGradients, SvdShape

_library = cast(Any, torch.library)

_library.define("reflectory::svd_factors", "(Tensor u, Tensor v, Tensor sigma) -> (Tensor, Tensor)")
_library.define(
    "reflectory::svd_factors_backward",
    "(Tensor grad_left, Tensor grad_right, Tensor u, Tensor v, Tensor sigma) "
    "-> (Tensor, Tensor, Tensor)",
)
_library.define("reflectory::svd_weight", "(Tensor u, Tensor v, Tensor sigma) -> Tensor")
_library.define(
    "reflectory::svd_weight_backward",
    "(Tensor grad_weight, Tensor u, Tensor v, Tensor sigma) -> (Tensor, Tensor, Tensor)",
)


def svd_factors(u: Tensor, v: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor]:
    """L `[G, n, m2 + m1]` and R `[G, m2 + m1, n]` of `W = diag(sigma) + L R` (eq. 6).

    Args:
        u: `[G, m1, n]`, rows of any length, float32 on the CPU; a row of zeros is no reflection.
        v: `[G, m2, n]`, alike.
        sigma: `[G, n]`.
    """
    return torch.ops.reflectory.svd_factors(u, v, sigma)


def svd_weight(u: Tensor, v: Tensor, sigma: Tensor) -> Tensor:
    """W `[G, n, n]` itself, of the tensors that `svd_factors` takes."""
    return torch.ops.reflectory.svd_weight(u, v, sigma)


def _run(u: Tensor, v: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor]:
    shape = _checked(u, v, sigma)
    left, right = _results(u, v, sigma)
    given = [tensor.contiguous() for tensor in (u, v, sigma)]
    arguments = SvdArguments(*map(address_of, (*given, left, right)), None)
    call("svd_factors_forward", shape, arguments)
    return left, right


def _results(u: Tensor, v: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG001 -- an operator's signature
    copies, m1, size = u.shape
    rank = m1 + v.shape[1]
    return u.new_empty(copies, size, rank), u.new_empty(copies, rank, size)


def _run_backward(
    grad_left: Tensor, grad_right: Tensor, u: Tensor, v: Tensor, sigma: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    shape = _checked(u, v, sigma)
    rank = shape.u_count + shape.v_count
    check("grad_left", grad_left, (shape.copies, shape.size, rank), torch.float32)
    check("grad_right", grad_right, (shape.copies, rank, shape.size), torch.float32)
    given = [tensor.contiguous() for tensor in (u, v, sigma, grad_left, grad_right)]
    results = _gradients(grad_left, grad_right, u, v, sigma)
    arguments = SvdArguments(*map(address_of, given[:3]), None, None, None)
    gradients = SvdGradients(*map(address_of, (*given[3:], None, *results)))
    call("svd_factors_backward", shape, arguments, gradients)
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


def _run_whole(u: Tensor, v: Tensor, sigma: Tensor) -> Tensor:
    shape = _checked(u, v, sigma)
    weight = _whole(u, v, sigma)
    given = [tensor.contiguous() for tensor in (u, v, sigma)]
    arguments = SvdArguments(*map(address_of, given), None, None, address_of(weight))
    call("svd_factors_forward", shape, arguments)
    return weight


def _whole(u: Tensor, v: Tensor, sigma: Tensor) -> Tensor:  # noqa: ARG001 -- an operator's signature
    copies, size = sigma.shape
    return u.new_empty(copies, size, size)


def _run_whole_backward(
    grad_weight: Tensor, u: Tensor, v: Tensor, sigma: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    shape = _checked(u, v, sigma)
    check("grad_weight", grad_weight, (shape.copies, shape.size, shape.size), torch.float32)
    given = [tensor.contiguous() for tensor in (u, v, sigma, grad_weight)]
    results = _whole_gradients(grad_weight, u, v, sigma)
    arguments = SvdArguments(*map(address_of, given[:3]), None, None, None)
    gradients = SvdGradients(None, None, *map(address_of, (given[3], *results)))
    call("svd_factors_backward", shape, arguments, gradients)
    return results


def _whole_gradients(
    grad_weight: Tensor,  # noqa: ARG001 -- an operator's signature
    u: Tensor,
    v: Tensor,
    sigma: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    return u.new_empty(u.shape), v.new_empty(v.shape), sigma.new_empty(sigma.shape)


def _setup_whole_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:  # noqa: ARG001
    ctx.save_for_backward(*inputs)


def _whole_backward(ctx: Any, grad_weight: Tensor) -> tuple[Tensor, ...]:
    return torch.ops.reflectory.svd_weight_backward(grad_weight, *ctx.saved_tensors)


_library.impl("reflectory::svd_weight", "cpu", _run_whole)
_library.impl("reflectory::svd_weight_backward", "cpu", _run_whole_backward)
_library.register_fake("reflectory::svd_weight", _whole)
_library.register_fake("reflectory::svd_weight_backward", _whole_gradients)
_library.register_autograd(
    "reflectory::svd_weight", _whole_backward, setup_context=_setup_whole_context
)

_library.impl("reflectory::svd_factors", "cpu", _run)
_library.impl("reflectory::svd_factors_backward", "cpu", _run_backward)
_library.register_fake("reflectory::svd_factors", _results)
_library.register_fake("reflectory::svd_factors_backward", _gradients)
_library.register_autograd("reflectory::svd_factors", _backward, setup_context=_setup_context)


def _rule(name: str) -> Rule:
    """Members' matrices are matrices: one call for all of them."""

    def rule(info: Any, in_dims: tuple[Any, ...], *tensors: Tensor) -> tuple[Any, Any]:
        operator = getattr(torch.ops.reflectory, name)
        given = (folded(one, at, info.batch_size) for one, at in zip(tensors, in_dims, strict=True))
        found = operator(*given)
        if isinstance(found, Tensor):
            return unfolded(found, info.batch_size), 0
        return tuple(unfolded(one, info.batch_size) for one in found), (0,) * len(found)

    return rule


for _name in ("svd_factors", "svd_weight"):
    _library.register_vmap(f"reflectory::{_name}", _rule(_name))


def _checked(u: Tensor, v: Tensor, sigma: Tensor) -> SvdShape:
    """The sizes, if the tensors have them."""
    if sigma.dim() != 2 or u.dim() != 3 or v.dim() != 3:
        dimensions = u.dim(), v.dim(), sigma.dim()
        raise ValueError(f"u, v and sigma have {dimensions} dimensions; the kernel takes 3, 3, 2")
    copies, size = sigma.shape
    check("sigma", sigma, (copies, size), torch.float32)
    check("u", u, (copies, u.shape[1], size), torch.float32)
    check("v", v, (copies, v.shape[1], size), torch.float32)
    return SvdShape(copies, size, u.shape[1], v.shape[1], torch.get_num_threads())
