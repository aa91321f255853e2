"""Batch normalisation as the low-rank highway networks use it."""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

EPSILON = 1e-4
MOMENTUM = 0.1


class _Normalise(torch.autograd.Function):
    """`(x - mean) / (std + 1e-4)`, mean and std over the batch; the latter two have no gradient.

    Written out: torch's std of columns takes longer than the products around it. A column that is
    constant is 0, and its gradient is that of its mean alone, as torch has it.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride] -- without ctx
        mean = x.mean(0)
        centred = x - mean
        std = centred.square().mean(0).sqrt()
        return centred / (std + EPSILON), mean, std

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, ...]) -> None:  # noqa: ARG004
        normal, mean, std = output
        ctx.mark_non_differentiable(mean, std)
        ctx.save_for_backward(normal, std)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride] -- the decorator's signature
        ctx: Any, gradient: Tensor, *_: Tensor
    ) -> Tensor:
        normal: Tensor
        std: Tensor
        normal, std = ctx.saved_tensors
        along = ((gradient * normal).mean(0) / std).masked_fill(std == 0, 0)
        return (gradient - gradient.mean(0)) / (std + EPSILON) - normal * along


_normalise = cast(
    Callable[[Tensor], tuple[Tensor, Tensor, Tensor]],
    _Normalise.apply,  # pyright: ignore[reportUnknownMemberType] -- untyped
)


class BatchNorm(nn.Module):
    """`(x - mean) / (std + 1e-4)` over the batch, times `scale` plus `bias` where it is affine.

    In training mean and std (that of the batch itself, not of what it was drawn from) move the
    running ones by a tenth, which are used otherwise. An empty batch has neither: it uses the
    running ones and leaves them alone. Those of a column whose mean or std is not finite stay as
    they are. Source: Ioffe, Szegedy (arXiv:1502.03167), with the epsilon outside the root and a
    running std as in the code of Miceli Barone (arXiv:1603.03116); torch's own module has neither,
    refuses a batch of one and counts batches in an integer.
    """

    mean: Tensor
    std: Tensor
    scale: nn.Parameter | None
    bias: nn.Parameter | None

    def __init__(self, size: int, *, affine: bool) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("std", torch.ones(size))
        self.register_parameter("scale", nn.Parameter(torch.ones(size)) if affine else None)
        self.register_parameter("bias", nn.Parameter(torch.zeros(size)) if affine else None)

    def forward(self, x: Tensor) -> Tensor:
        """`[B, n]` -> `[B, n]`."""
        if self.training and len(x):
            normal, mean, std = _normalise(x)
            if len(x) > 1:
                # A single sample says nothing of how samples differ.
                with torch.no_grad():
                    # What overflowed would stay in the running ones for ever.
                    sound = mean.isfinite() & std.isfinite()
                    for running, found in ((self.mean, mean), (self.std, std)):
                        moved = torch.lerp(running, found, MOMENTUM)
                        running.copy_(torch.where(sound, moved, running))
        else:
            normal = (x - self.mean) / (self.std + EPSILON)
        if self.scale is None or self.bias is None:
            return normal
        return torch.addcmul(self.bias, normal, self.scale)

    def extra_repr(self) -> str:
        """Size, for printing."""
        return f"{len(self.mean)}, affine={self.scale is not None}"
