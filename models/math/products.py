"""Products of matrices, by the faster of the two libraries that torch brings for CPUs.

Torch multiplies by MKL, which leaves half of the vector units of AMD's processors unused: it takes
AVX2 where they have AVX-512. oneDNN takes what there is, and a call of it costs more.
"""

import math
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx

from models.kernels.choice import wanted_backend
from models.kernels.library import instructions
from models.kernels.members import is_stacked

_LEAST_MULTIPLY_ADDS = 10_000_000
"""Of a product, from which on oneDNN has made up for what a call costs."""
_LEAST_SIDE = 32
"""Of both matrices; narrow ones are read once, by whatever library."""


def product(x: Tensor, matrix: Tensor, addend: Tensor | None = None) -> Tensor:
    """`x M + addend` of `[B, in]`, `[in, out]` and `[B, out]`, or of as many of each."""
    if not _one_dnn_pays(x.shape[-2], x, matrix):
        if addend is None:
            return x @ matrix
        return (torch.addmm if x.dim() == 2 else torch.baddbmm)(addend, x, matrix)
    result = cast(Tensor, cast(Any, _Product).apply(x, matrix))
    return result if addend is None else result + addend


def affine(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`x W^T + b` of `[..., in]`, `[out, in]` and, where there is one, `[out]`."""
    rows, matrix = math.prod(x.shape[:-1]), weight.t()
    if not _one_dnn_pays(rows, x, matrix):
        return nn.functional.linear(x, weight, bias)
    return product(x.flatten(0, -2), matrix, bias).view(*x.shape[:-1], len(weight))


class _Product(torch.autograd.Function):
    """`x M` of `[B, in]` and `[in, out]`, or of as many of both; its gradients are products too."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, matrix: Tensor) -> Tensor:
        ctx.save_for_backward(x, matrix)
        return _one_dnn(x, matrix)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, Tensor | None]:  # pyright: ignore[reportIncompatibleMethodOverride] -- torch's own is untyped
        x, matrix = ctx.saved_tensors
        (grad,) = grad_outputs
        wants_x, wants_matrix = ctx.needs_input_grad
        of_x = product(grad, matrix.mT) if wants_x else None
        if not wants_matrix:
            return of_x, None
        # In the order of the matrix's own numbers: to turn it over afterwards takes as long.
        is_turned = matrix.stride(-2) < matrix.stride(-1)
        return of_x, product(grad.mT, x).mT if is_turned else product(x.mT, grad)


def _one_dnn(x: Tensor, matrix: Tensor) -> Tensor:
    if x.dim() > 2:
        return torch.stack([_one_dnn(*each) for each in zip(x, matrix, strict=True)])
    return torch.ops.mkldnn._linear_pointwise(
        _without_gaps(x), _without_gaps(matrix).t(), None, "none", [], ""
    )


def _without_gaps(matrix: Tensor) -> Tensor:
    """Rows or columns one after the other: with others oneDNN takes a thousand times as long."""
    is_dense = matrix.is_contiguous() or matrix.t().is_contiguous()
    return matrix if is_dense else matrix.contiguous()


def _one_dnn_pays(rows: int, x: Tensor, matrix: Tensor) -> bool:
    """Whether it does for `rows` rows of x."""
    columns = matrix.shape[-1]
    return (
        not torch.compiler.is_compiling()
        and rows * x.shape[-1] * columns >= _LEAST_MULTIPLY_ADDS
        and min(rows, x.shape[-1], columns) >= _LEAST_SIDE
        and x.dtype == matrix.dtype == torch.float32
        and x.device.type == "cpu"
        and _mkl_is_narrow()
        and wanted_backend() in (None, "cpp")
        and not is_stacked()
    )


@cache
def _mkl_is_narrow() -> bool:
    """Whether MKL computes with narrower vectors here than oneDNN, which is there."""
    known = instructions()
    if not ({"AMD", "avx512f"} <= known and torch.backends.mkl.is_available()):
        return False
    ones = torch.ones(2, 2)
    try:
        return bool(torch.equal(_one_dnn(ones, ones), ones @ ones))
    except (AttributeError, RuntimeError):
        # A build of torch without oneDNN, or one that calls it by another name.
        return False
