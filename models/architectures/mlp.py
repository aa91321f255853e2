"""The multi-layer perceptron."""

from typing import ClassVar, Literal, Self

from pydantic import Field
from torch import Tensor

from models.architectures.feed_forward import Perceptron, PerceptronStack, affine_layers
from models.forms import Form
from models.kernels.structs import StackName
from models.linear import StructuredLinear
from models.math.dropout import dropout
from models.parameter_sampler import ParameterSampler
from models.spec import Signature, Slot


class Mlp(Perceptron):
    """`x_0 = f(W_in x + b)`, `x_l = f(W_l x_{l-1} + b_l)`, `o = Y x_L + c` of a whole sequence x.

    The parametrization stores W_1 to W_L; with householder_svd this is the svdMLP.
    """

    title: ClassVar[str] = "MLP"
    compiled: ClassVar[bool] = True
    paper: ClassVar[str] = (
        "Rumelhart, Hinton, Williams: Learning representations by back-propagating errors (Nature "
        "323, 1986); with singular values near 1 Zhang, Lei, Dhillon (2018, arXiv:1803.09327)"
    )

    kind: Literal["mlp"] = "mlp"
    layers: int = Field(
        default=2, ge=1, le=1024, description="hidden layers L, beside the one that reads the input"
    )

    @classmethod
    def suggest(cls, sampler: ParameterSampler, signature: Signature) -> Self:  # noqa: ARG003 -- one range
        """hidden_size log-uniform from 16 to 128, layers from 1 to 8."""
        return cls(
            hidden_size=sampler.integer("hidden_size", 16, 128, log=True),
            layers=sampler.integer("layers", 1, 8),
        )

    def hidden_slot(self) -> Slot:
        """W_1 to W_L."""
        size = self.hidden_size
        return Slot(out_features=size, in_features=size, layers=self.layers)

    def hidden_stack(self, hidden: StructuredLinear) -> "MlpStack":  # noqa: ARG002 -- any will do
        """The layers in a row."""
        return MlpStack(self.activation, leak=self.leak, dropout=self.dropout)


class MlpStack(PerceptronStack):
    """`x_l = f(W_l x_{l-1} + b_l)`."""

    name: ClassVar[StackName] = "plain_layers"

    def forward(self, x: Tensor, form: Form, bias: Tensor) -> Tensor:
        """`[B, n]` -> `[B, n]`; `bias` is `[L, n]`."""
        for layer, addend in affine_layers(form, bias, gates=1):
            (raw,) = layer.matmul(dropout(x, self.dropout, training=self.training), addend)
            x = self.activation(raw)
        return x
