"""The linear maps that models are made of: structured weights, and plain affine ends."""

import contextlib
import itertools
from abc import abstractmethod
from collections.abc import Generator, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from models.forms import Form, Whole
from models.hooks import CachesForms
from models.math.initialisation import glorot_uniform_, normal_
from models.math.products import affine
from models.math.weight_norm import NormalisedRows
from models.quantization import Matrices, Quantised, Scheme
from models.spec import Slot


class StructuredLinear(nn.Module, CachesForms, Quantised):
    """The G matrices W_g `[out, in]` of a slot, stored by their own numbers only.

    A complex matrix `A + iB` acts on vectors `(re | im)` of twice its size, as the real matrix
    `[[A, -B], [B, A]]`.
    """

    def __init__(self, slot: Slot) -> None:
        super().__init__()
        parts = 2 if slot.field == "complex" else 1
        self.slot = slot
        self.in_features = parts * slot.in_features
        self.out_features = parts * slot.out_features
        self.num_matrices = slot.num_matrices
        self.cached_form: Form | None = None

    @abstractmethod
    def make_form(self) -> Form:
        """The form in which the matrices are applied, differentiable in the parameters."""

    @abstractmethod
    def degrees_of_freedom(self) -> int:
        """Dimension of the set of matrices that the parameters reach, all matrices together."""

    @torch.no_grad()
    def multiply_adds(self) -> int:
        """Multiply-adds of applying all matrices to one vector, in the form in which it is done."""
        return self.form().multiply_adds()

    @property
    def members(self) -> "Sequence[StructuredLinear]":
        """The maps that this one is put together of, if it stores nothing itself."""
        return ()

    @property
    def inner_size(self) -> int | None:
        """Width d of the narrow middle, where every `W_g x = L_g (R_g x)` (+ a diagonal term)."""
        return None

    def form(self) -> Form:
        """Made once per forward pass; inside `cached_forms`, once in all."""
        return self.make_form() if self.cached_form is None else self.cached_form

    def cache(self) -> None:
        """Make the form and keep it."""
        self.cached_form = self.make_form()

    def clear(self) -> None:
        """Keep it no longer."""
        self.cached_form = None

    def apply_weight(self, x: Tensor) -> Tensor:
        """`[..., in]` -> `[..., G*out]`, the matrices one after the other in the last dimension."""
        return self._products(self.form(), x)

    def dense_weight(self) -> Tensor:
        """The matrices `[G, out, in]`, derived from their products so that they cannot drift."""
        # A 1 x 1 orthogonal matrix is a sign: it has a buffer and no parameter.
        reference = next(itertools.chain(self.parameters(), self.buffers()))
        identity = torch.eye(self.in_features, dtype=reference.dtype, device=reference.device)
        # The identity is no input of the network.
        columns = self._products(self.form().unwatched(), identity)
        return columns.t().reshape(self.num_matrices, self.out_features, self.in_features)

    def _products(self, form: Form, x: Tensor) -> Tensor:
        parts = form.matmul(x.reshape(-1, self.in_features))
        result = parts[0] if self.num_matrices == 1 else torch.cat(parts, dim=-1)
        return result.reshape(*x.shape[:-1], self.num_matrices * self.out_features)

    def singular_values(self) -> Tensor | None:
        """Singular values `[G, min(out, in)]`, unsorted and signed, where they are known."""
        return None

    @property
    def sigma_star(self) -> float | Tensor:
        """What singular values are to be near: 1, where a gradient keeps its norm.

        In a branch that is added to its own input it is 0, unless the parametrization itself says
        which values there are.
        """
        return 0.0 if self.slot.residual and self.singular_values() is None else 1.0

    def penalty(self) -> Tensor | None:
        """A scalar to add to the training loss, where the parametrization asks for one."""
        return None

    def learning_rate_scales(self) -> Mapping[str, float]:
        """Factors on the learning rate of parameters, by name, where W would else barely move."""
        return {}

    def schemes(self) -> Mapping[str, Scheme]:
        """How its own parameters are rounded where the model has few bits; unnamed ones are not."""
        return {}

    def reals(self) -> Mapping[str, float]:
        """Real hyperparameters that it computes with, by name: see `Family.reals`."""
        return {}

    def use_reals(self, reals: Mapping[str, Tensor]) -> None:
        """Compute with others, scalars that stand for each member's own in a stack of networks."""

    def extra_repr(self) -> str:
        """Sizes, for printing."""
        return f"{self.in_features}, {self.out_features}, num_matrices={self.num_matrices}"


def stored_matrices(module: nn.Module) -> Iterator[StructuredLinear]:
    """The structured matrices by which a module's numbers are stored, each once.

    What is put together of others stores none.
    """
    for part in module.modules():
        if isinstance(part, StructuredLinear) and not part.members:
            yield part


class Affine(nn.Module, Quantised):
    """`x W^T + b` with a plain W, for the ends of a model: Glorot-uniform W per copy, b = 0.

    torch's own `nn.Linear` draws its start from the global generator; this one is given its
    generator. With `weight_norm` the rows of W are `g v / |v|`.
    """

    bias: nn.Parameter | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        num_matrices: int = 1,
        bias: bool = True,
        weight_norm: bool = False,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        weight = torch.empty(num_matrices, out_features, in_features)
        glorot_uniform_(weight, generator=generator)
        weight = weight.flatten(0, 1)
        self.weight = NormalisedRows(weight, gain=True) if weight_norm else nn.Parameter(weight)
        self.register_parameter(
            "bias", nn.Parameter(torch.zeros(num_matrices * out_features)) if bias else None
        )

    def forward(self, x: Tensor) -> Tensor:
        """`[..., in]` -> `[..., G*out]`."""
        return affine(x, self.plain_weight(), self.bias)

    def draw_normal_(self, deviation: float, *, generator: torch.Generator) -> None:
        """Start W anew from N(0, deviation^2), in place."""
        weight = normal_(torch.empty_like(self.plain_weight()), deviation, generator=generator)
        with torch.no_grad():
            if isinstance(self.weight, NormalisedRows):
                self.weight.start_from_(weight)
            else:
                self.weight.copy_(weight)

    def plain_weight(self) -> Tensor:
        """W `[G*out, in]`."""
        return self.weight() if isinstance(self.weight, NormalisedRows) else self.weight

    def plain_parts(self) -> tuple[Tensor, Tensor | None]:
        """W `[G*out, in]` and b `[G*out]`."""
        return self.plain_weight(), self.bias

    def schemes(self) -> Mapping[str, Scheme]:
        """W is rounded, or its rows say themselves how they are."""
        return {} if isinstance(self.weight, NormalisedRows) else {"weight": Matrices()}

    def multiply_adds(self) -> int:
        """Multiply-adds per input vector."""
        return self.plain_weight().numel()

    def degrees_of_freedom(self) -> int:
        """One per entry of W and b."""
        return self.multiply_adds() + (0 if self.bias is None else self.bias.numel())

    def extra_repr(self) -> str:
        """Sizes, for printing."""
        return f"{self.in_features}, {self.multiply_adds() // self.in_features}"


class StructuredAffine(nn.Module):
    """`x W_g^T + b` with structured W_g, b = 0 at the start."""

    bias: nn.Parameter | None

    def __init__(self, linear: StructuredLinear, *, bias: bool = True) -> None:
        super().__init__()
        self.linear = linear
        self.in_features = linear.in_features
        size = linear.num_matrices * linear.out_features
        self.register_parameter("bias", nn.Parameter(torch.zeros(size)) if bias else None)

    def forward(self, x: Tensor) -> Tensor:
        """`[..., in]` -> `[..., G*out]`."""
        result = self.linear.apply_weight(x)
        return result if self.bias is None else result + self.bias

    def plain_parts(self) -> tuple[Tensor, Tensor | None] | None:
        """W `[G*out, in]` and b `[G*out]` where W is applied as a whole, else None."""
        parts = self.linear.form().parts()
        return (parts.weight.flatten(0, 1), self.bias) if isinstance(parts, Whole) else None


def cache_forms(module: nn.Module) -> None:
    """Keep the forms of all structured weights as they are now.

    From then on no gradient reaches the parameters, and changes of them have no effect.
    """
    with torch.no_grad():
        for part in reversed(list(module.modules())):
            if isinstance(part, CachesForms):
                part.cache()


def clear_forms(module: nn.Module) -> None:
    """Make forms anew in each forward pass."""
    for part in module.modules():
        if isinstance(part, CachesForms):
            part.clear()


@contextlib.contextmanager
def cached_forms(module: nn.Module) -> Generator[None, None, None]:
    """Make the forms of all structured weights now and keep them, for inference.

    Within the context no gradient reaches the parameters, and changes of them have no effect.
    """
    try:
        cache_forms(module)
        yield
    finally:
        clear_forms(module)
