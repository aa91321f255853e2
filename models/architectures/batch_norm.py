"""Batch normalisation as the low-rank highway networks use it."""

import torch
from torch import Tensor, nn

EPSILON = 1e-4
MOMENTUM = 0.1


class BatchNorm(nn.Module):
    """`(x - mean) / (std + 1e-4)` over the batch, times `scale` plus `bias` where it is affine.

    In training mean and std (that of the batch itself, not of what it was drawn from) move the
    running ones by a tenth, which are used otherwise. An empty batch has neither: it uses the
    running ones and leaves them alone. Source: Ioffe, Szegedy (arXiv:1502.03167), with the epsilon
    outside the root and a running std as in the code of Miceli Barone (arXiv:1603.03116); torch's
    own module has neither, refuses a batch of one and counts batches in an integer.
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
        mean, std = self._batch_statistics(x) if self.training and len(x) else (self.mean, self.std)
        normal = (x - mean) / (std + EPSILON)
        if self.scale is None or self.bias is None:
            return normal
        return torch.addcmul(self.bias, normal, self.scale)

    def _batch_statistics(self, x: Tensor) -> tuple[Tensor, Tensor]:
        std, mean = torch.std_mean(x, dim=0, correction=0)
        with torch.no_grad():
            self.mean.copy_(torch.lerp(self.mean, mean, MOMENTUM))
            self.std.copy_(torch.lerp(self.std, std, MOMENTUM))
        return mean, std

    def extra_repr(self) -> str:
        """Size, for printing."""
        return f"{len(self.mean)}, affine={self.scale is not None}"
