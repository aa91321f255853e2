"""The highway network: layers whose gates decide, per unit, between passing on and transforming."""

from collections.abc import Callable, Mapping
from typing import ClassVar, Literal, NamedTuple, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from models.architectures.batch_norm import BatchNorm
from models.architectures.feed_forward import (
    FeedForward,
    FeedForwardNetwork,
    Stack,
    affine_layers,
)
from models.forms import Form, Thin
from models.kernels.calls import Kind
from models.linear import StructuredLinear
from models.math.dropout import dropout, dropout_mask
from models.parameter_sampler import ParameterSampler
from models.spec import Signature, Slot

GATES = 2

StackName = Literal["plain", "batch_normalised"]


class _Dropouts(NamedTuple):
    input: float
    layer: float
    inner: float
    readout: float


_DROPOUTS: Mapping[StackName, _Dropouts] = {
    "plain": _Dropouts(input=0.0, layer=0.0, inner=0.0, readout=0.0),
    "batch_normalised": _Dropouts(input=0.2, layer=0.3, inner=0.3, readout=0.5),
}


class Highway(FeedForward):
    """`x <- h * tau + x * (1 - tau)`, `h = relu(W_h x + b_h)`, `tau = sigmoid(W_tau x + b_tau)`.

    Before the first layer `x = relu(W_in x + b)`. The parametrization stores W_h and W_tau of all
    layers.

    The batch-normalised stack is the one of Miceli Barone, A.1, and its code: `W_in` has no bias
    and is followed by batch normalisation; so is every `W x` of a layer, with a learned scale
    before the bias. A matrix with a narrow middle, `W x = L (R x) + D * x`, has `R x` normalised
    too. What a layer's matrices see of x, and of `R x`, goes through one mask for both gates, as 0
    and 1 in training and as its mean otherwise; what passes through is never masked.
    """

    title: ClassVar[str] = "Highway"
    compiled: ClassVar[bool] = True
    paper: ClassVar[str] = (
        "Srivastava, Greff, Schmidhuber: Highway Networks (2015, arXiv:1505.00387); with low-rank "
        "matrices Miceli Barone (2016, arXiv:1603.03116)"
    )

    kind: Literal["highway"] = "highway"
    layers: int = Field(default=3, ge=1, le=1024, description="highway layers T")
    transform_bias: float = Field(
        default=-1.0, description="start of b_tau: the smaller, the more of x passes through"
    )
    stack: StackName = Field(
        default="plain", description="layers alone, or with batch normalisation and dropout around"
    )
    input_dropout: float | None = Field(
        default=None,
        ge=0,
        lt=1,
        description="share of the input dropped; if null 0.2 when batch-normalised, else 0",
    )
    layer_dropout: float | None = Field(
        default=None,
        ge=0,
        lt=1,
        description=(
            "share of x hidden from a layer's matrices; if null 0.3 when batch-normalised, else 0"
        ),
    )
    inner_dropout: float | None = Field(
        default=None,
        ge=0,
        lt=1,
        description=(
            "share of R x hidden from L where matrices have a narrow middle, in the "
            "batch-normalised stack; if null 0.3"
        ),
    )
    readout_dropout: float | None = Field(
        default=None,
        ge=0,
        lt=1,
        description=(
            "share of x hidden from the readout; if null 0.5 when batch-normalised, else 0"
        ),
    )

    @model_validator(mode="after")
    def _inner_dropout_needs_its_stack(self) -> Self:
        if self.inner_dropout and self.stack != "batch_normalised":
            raise ValueError(
                f"inner_dropout = {self.inner_dropout} is for the batch_normalised stack; "
                f"in a {self.stack} one allowed is null or 0"
            )
        return self

    @classmethod
    def suggest(cls, sampler: ParameterSampler, signature: Signature) -> Self:  # noqa: ARG003 -- one range
        """hidden_size log-uniform from 16 to 128, layers from 1 to 5."""
        return cls(
            hidden_size=sampler.integer("hidden_size", 16, 128, log=True),
            layers=sampler.integer("layers", 1, 5),
        )

    @property
    def counts_shape_more(self) -> bool:
        """Behind a narrow middle its rank does: of running mean and std, and of the inner mask."""
        return self._normalised

    @property
    def _normalised(self) -> bool:
        return self.stack == "batch_normalised"

    @property
    def _dropouts(self) -> _Dropouts:
        """The rates that are given, and the stack's own in the place of the others."""
        own = _DROPOUTS[self.stack]
        given = (self.input_dropout, self.layer_dropout, self.inner_dropout, self.readout_dropout)
        return _Dropouts(*(b if a is None else a for a, b in zip(given, own, strict=True)))

    @property
    def input_bias(self) -> bool:
        """The normalisation that may follow has its own."""
        return not self._normalised

    @property
    def end_dropouts(self) -> tuple[float, float]:
        """As given, or the stack's own."""
        return self._dropouts.input, self._dropouts.readout

    def hidden_slot(self) -> Slot:
        """W_h and W_tau of the first layer, then of the next."""
        size = self.hidden_size
        return Slot(out_features=size, in_features=size, gates=GATES, layers=self.layers)

    def vector_count(self) -> int:
        """Biases; with normalisation a scale beside each, also after the input matrix."""
        if not self._normalised:
            return super().vector_count()
        return 2 * (GATES * self.layers + 1) * self.hidden_size

    @property
    def saved_per_unit(self) -> int:
        """Normalised layers run in single operations, which keep their results."""
        return 12 if self._normalised else super().saved_per_unit

    def entry(self) -> Callable[[Tensor], Tensor]:
        """relu, after the normalisation where there is one."""
        if not self._normalised:
            return torch.relu
        return nn.Sequential(BatchNorm(self.hidden_size, affine=True), nn.ReLU())

    def hidden_stack(self, hidden: StructuredLinear) -> Stack:
        """The stack that is named."""
        rates = self._dropouts
        if not self._normalised:
            return HighwayStack(rates.layer)
        return NormalisedHighwayStack(hidden, dropout=rates.layer, inner_dropout=rates.inner)

    def initialise(self, network: FeedForwardNetwork) -> None:
        """b_tau at transform_bias."""
        with torch.no_grad():
            network.bias[:, self.hidden_size :].fill_(self.transform_bias)


class HighwayStack(Stack):
    """`x <- h * tau + x * (1 - tau)`; dropout leaves the passthrough whole."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout

    @property
    def kind(self) -> Kind | None:
        """The layers, while nothing is dropped between them."""
        return None if self.training and self.dropout else Kind("highway_layers", "relu", 0.0)

    def forward(self, x: Tensor, form: Form, bias: Tensor) -> Tensor:
        """`[B, n]` -> `[B, n]`; `bias` is `[T, 2*n]`."""
        for layer, addend in affine_layers(form, bias, gates=GATES):
            h, tau = layer.matmul(dropout(x, self.dropout, training=self.training), addend)
            x = _mix(x, h, tau)
        return x


class NormalisedHighwayStack(Stack):
    """The same with the normalised products of each layer, times `scale` `[T, 2*n]` plus bias."""

    def __init__(self, hidden: StructuredLinear, *, dropout: float, inner_dropout: float) -> None:
        super().__init__()
        width = GATES * hidden.out_features
        self.products = nn.ModuleList(
            NormalisedProduct(width, dropout=dropout, inner=inner, inner_dropout=inner_dropout)
            for inner in _inner_shapes(hidden)
        )
        self.scale = nn.Parameter(torch.ones(hidden.slot.layers, width))

    def forward(self, x: Tensor, form: Form, bias: Tensor) -> Tensor:
        """`[B, n]` -> `[B, n]`; `bias` is `[T, 2*n]`."""
        layers = zip(
            self.products,
            form.split(GATES),
            self.scale.unbind(0),
            bias.unbind(0),
            strict=True,
        )
        for product, matrices, scale, shift in layers:
            h, tau = torch.addcmul(shift, product(x, matrices), scale).chunk(GATES, dim=-1)
            x = _mix(x, h, tau)
        return x


class NormalisedProduct(nn.Module):
    """Both gates' `W x` of a layer, masked and normalised; see `Highway`."""

    def __init__(
        self,
        width: int,
        *,
        dropout: float,
        inner: tuple[int, int] | None,
        inner_dropout: float,
    ) -> None:
        """`inner` is the number of matrices R of a layer and the rows of each, if it has any."""
        super().__init__()
        self.dropout = dropout
        self.middle = None if inner is None else NormalisedMiddle(*inner, dropout=inner_dropout)
        self.norm = BatchNorm(width, affine=False)

    def forward(self, x: Tensor, matrices: Form) -> Tensor:
        """`[B, n]` -> `[B, 2*n]`."""
        seen = x * _unscaled_mask(x, self.dropout, training=self.training)
        parts = (
            matrices.matmul(seen)
            if self.middle is None
            else matrices.matmul_through(seen, self.middle)
        )
        return self.norm(torch.cat(parts, dim=-1))


class NormalisedMiddle(nn.Module):
    """What stands between R and L: normalisation, and one mask for all R of a layer."""

    def __init__(self, num_right: int, rank: int, *, dropout: float) -> None:
        super().__init__()
        self.num_right = num_right
        self.dropout = dropout
        self.norm = BatchNorm(num_right * rank, affine=False)

    def forward(self, inner: Tensor) -> Tensor:
        """`[B, num_right*d]` -> `[B, num_right*d]`."""
        normal = self.norm(inner).unflatten(-1, (self.num_right, -1))
        mask = _unscaled_mask(normal[:, :1], self.dropout, training=self.training)
        return (normal * mask).flatten(1)


def _mix(x: Tensor, h: Tensor, tau: Tensor) -> Tensor:
    """`relu(h) * sigmoid(tau) + x * (1 - sigmoid(tau))`."""
    return torch.lerp(x, h.relu(), tau.sigmoid())


def _unscaled_mask(like: Tensor, rate: float, *, training: bool) -> Tensor | float:
    """0 and 1 in training, in the shape of a tensor; their mean otherwise, or if none is 0."""
    if not training or rate == 0:
        return 1 - rate
    return dropout_mask(like, rate)


def _inner_shapes(hidden: StructuredLinear) -> list[tuple[int, int] | None]:
    """What `_inner_shape` says of each layer."""
    if hidden.members:
        return [_inner_shape(member) for member in hidden.members]
    return [_inner_shape(hidden)] * hidden.slot.layers


def _inner_shape(hidden: StructuredLinear) -> tuple[int, int] | None:
    """How many matrices R a layer has, and the rows of each; None without a narrow middle."""
    if hidden.inner_size is None:
        return None
    parts = hidden.make_form().split(GATES)[0].parts()
    assert isinstance(parts, Thin)
    num_right, rank, _ = parts.right.shape
    return num_right, rank
