"""The linear maps that models are made of: structured weights, and plain affine ends."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from models.ops.factors import Factors
from models.ops.initialisation import glorot_uniform_


class StructuredLinear(nn.Module, ABC):
    """`copies` (G) matrices W_g `[out, in]` of one shape, stored by their own numbers only.

    The copies share nothing but their shape; gates of one cell are kept together so that they can
    be applied together.
    """

    def __init__(self, in_features: int, out_features: int, *, copies: int = 1) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.copies = copies
        self.held_factors: Factors | None = None

    @abstractmethod
    def make_factors(self) -> Factors:
        """The form in which the matrices are applied, differentiable in the parameters."""

    @abstractmethod
    def multiply_adds(self) -> int:
        """Multiply-adds of applying all copies to one vector, in the form that `factors` has."""

    @abstractmethod
    def degrees_of_freedom(self) -> int:
        """Dimension of the set of matrices that the parameters reach, all copies together."""

    def factors(self) -> Factors:
        """Made once per forward pass; inside `cached_factors`, once in all."""
        return self.make_factors() if self.held_factors is None else self.held_factors

    def apply_weight(self, x: Tensor) -> Tensor:
        """`[..., in]` -> `[..., G*out]`, the copies one after the other in the last dimension."""
        parts = self.factors().advance(x.reshape(-1, self.in_features))
        result = parts[0] if self.copies == 1 else torch.cat(parts, dim=-1)
        return result.reshape(*x.shape[:-1], self.copies * self.out_features)

    def dense_weight(self) -> Tensor:
        """The matrices `[G, out, in]`, derived from `apply_weight` so that they cannot drift."""
        reference = next(self.parameters())
        identity = torch.eye(self.in_features, dtype=reference.dtype, device=reference.device)
        columns = self.apply_weight(identity)
        return columns.t().reshape(self.copies, self.out_features, self.in_features)

    def singular_values(self) -> Tensor | None:
        """Singular values `[G, min(out, in)]`, unsorted, where the parametrization knows them."""
        return None

    def penalty(self) -> Tensor | None:
        """A scalar to add to the training loss, where the parametrization asks for one."""
        return None

    def learning_rate_scales(self) -> Mapping[str, float]:
        """Factors on the learning rate of parameters, by name, where W would else barely move."""
        return {}

    def extra_repr(self) -> str:
        """Sizes, for printing."""
        return f"{self.in_features}, {self.out_features}, copies={self.copies}"


@runtime_checkable
class Renormalisable(Protocol):
    """A module whose parameters can be rescaled without changing what it computes."""

    def renormalise_(self) -> None:
        """Bring the parameters back to scale, in place."""
        ...


class Affine(nn.Module):
    """`x W^T + b` with a plain W, for the ends of a model: Glorot-uniform W per copy, b = 0.

    torch's own `nn.Linear` draws its start from the global generator; this one is given its
    generator.
    """

    def __init__(
        self, in_features: int, out_features: int, *, copies: int = 1, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(copies * out_features, in_features))
        self.bias = nn.Parameter(torch.zeros(copies * out_features))
        with torch.no_grad():
            glorot_uniform_(
                self.weight.view(copies, out_features, in_features), generator=generator
            )

    def forward(self, x: Tensor) -> Tensor:
        """`[..., in]` -> `[..., G*out]`."""
        return nn.functional.linear(x, self.weight, self.bias)

    def multiply_adds(self) -> int:
        """Multiply-adds per input vector."""
        return self.weight.numel()

    def degrees_of_freedom(self) -> int:
        """Every number counts."""
        return self.weight.numel() + self.bias.numel()

    def extra_repr(self) -> str:
        """Sizes, for printing."""
        return f"{self.weight.shape[1]}, {self.weight.shape[0]}"


@contextlib.contextmanager
def cached_factors(module: nn.Module) -> Generator[None, None, None]:
    """Make the factors of all structured weights now and keep them, for inference.

    Within the context no gradient reaches the parameters, and changes of them have no effect.
    """
    structured = [part for part in module.modules() if isinstance(part, StructuredLinear)]
    try:
        with torch.no_grad():
            for part in structured:
                part.held_factors = part.make_factors()
        yield
    finally:
        for part in structured:
            part.held_factors = None
