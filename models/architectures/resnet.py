"""The residual network of fully connected layers."""

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


class Resnet(Perceptron):
    """`x <- f(x + W_b f(W_a x + b_a) + b_b)` for each block, after `x_0 = f(W_in x + b)`.

    The parametrization stores the two matrices of all blocks; with householder_svd, whose singular
    values then lie around 0, this is the svdResNet. The papers leave open where the last f stands;
    here, as in the first one, after the sum.
    """

    title: ClassVar[str] = "ResNet"
    compiled: ClassVar[bool] = True
    paper: ClassVar[str] = (
        "He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition (CVPR 2016, "
        "arXiv:1512.03385); with bounded singular values Zhang, Lei, Dhillon (2018, "
        "arXiv:1803.09327)"
    )

    kind: Literal["resnet"] = "resnet"
    blocks: int = Field(default=2, ge=1, le=512, description="blocks of two layers each")

    @classmethod
    def suggest(cls, sampler: ParameterSampler, signature: Signature) -> Self:  # noqa: ARG003 -- one range
        """hidden_size log-uniform from 16 to 128, blocks from 1 to 4."""
        return cls(
            hidden_size=sampler.integer("hidden_size", 16, 128, log=True),
            blocks=sampler.integer("blocks", 1, 4),
        )

    def hidden_slot(self) -> Slot:
        """W_a and W_b of the first block, then of the next."""
        size = self.hidden_size
        return Slot(out_features=size, in_features=size, layers=2 * self.blocks, residual=True)

    def hidden_stack(self, hidden: StructuredLinear) -> "ResnetStack":  # noqa: ARG002 -- any will do
        """The blocks in a row."""
        return ResnetStack(self.activation, leak=self.leak, dropout=self.dropout)


class ResnetStack(PerceptronStack):
    """`x <- f(x + W_b f(W_a x + b_a) + b_b)`; dropout leaves the passthrough whole."""

    name: ClassVar[StackName] = "residual_layers"

    def forward(self, x: Tensor, form: Form, bias: Tensor) -> Tensor:
        """`[B, n]` -> `[B, n]`; `bias` is `[2 * blocks, n]`."""
        layers = affine_layers(form, bias, gates=1)
        for (first, b_a), (second, b_b) in zip(layers[::2], layers[1::2], strict=True):
            (raw,) = first.matmul(dropout(x, self.dropout, training=self.training), b_a)
            inner = dropout(self.activation(raw), self.dropout, training=self.training)
            (update,) = second.matmul(inner, b_b)
            x = self.activation(x + update)
        return x
