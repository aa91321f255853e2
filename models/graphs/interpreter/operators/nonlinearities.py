"""Activation functions."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from models.graphs.interpreter.node import Node
from models.graphs.interpreter.operators.operator_table import OperatorTable
from models.graphs.interpreter.tensor_values import aligned

NONLINEARITIES = OperatorTable()

NONLINEARITIES.add_unary("Relu", F.relu)
NONLINEARITIES.add_unary("Sigmoid", torch.sigmoid)
NONLINEARITIES.add_unary("Tanh", torch.tanh)
NONLINEARITIES.add_unary("Softsign", F.softsign)
NONLINEARITIES.add_unary("Mish", F.mish)
# F.softplus is linear above a threshold; this is exact.
NONLINEARITIES.add_unary("Softplus", lambda x: torch.logaddexp(x, torch.zeros_like(x)))


@NONLINEARITIES.operator("Gelu")
def gelu(node: Node, x: Tensor) -> Tensor:
    """The Gaussian error linear unit, exact or by tanh."""
    return F.gelu(x, approximate=node.text("approximate", "none"))


@NONLINEARITIES.operator("HardSigmoid")
def hard_sigmoid(node: Node, x: Tensor) -> Tensor:
    """A straight line within 0 and 1."""
    return torch.clamp(node.real("alpha", 0.2) * x + node.real("beta", 0.5), 0, 1)


@NONLINEARITIES.operator("HardSwish")
def hard_swish(_node: Node, x: Tensor) -> Tensor:
    """The input times a straight line within 0 and 1."""
    return x * torch.clamp(x / 6 + 0.5, 0, 1)


@NONLINEARITIES.operator("Swish")
def swish(node: Node, x: Tensor) -> Tensor:
    """The input times its sigmoid."""
    return x * torch.sigmoid(node.real("alpha", 1.0) * x)


@NONLINEARITIES.operator("LeakyRelu")
def leaky_relu(node: Node, x: Tensor) -> Tensor:
    """A slope of its own below 0."""
    return F.leaky_relu(x, node.real("alpha", 0.01))


@NONLINEARITIES.operator("PRelu")
def parametric_relu(_node: Node, x: Tensor, slope: Tensor) -> Tensor:
    """A slope below 0 that is broadcast, last axis to last axis."""
    x, slope = aligned(x, slope)
    return torch.where(x < 0, slope * x, x)


@NONLINEARITIES.operator("ThresholdedRelu")
def thresholded_relu(node: Node, x: Tensor) -> Tensor:
    """0 up to a threshold."""
    return torch.where(x > node.real("alpha", 1.0), x, torch.zeros_like(x))


@NONLINEARITIES.operator("Elu")
def elu(node: Node, x: Tensor) -> Tensor:
    """An exponential below 0."""
    return F.elu(x, node.real("alpha", 1.0))


@NONLINEARITIES.operator("Celu")
def celu(node: Node, x: Tensor) -> Tensor:
    """An exponential below 0, of a slope without a step."""
    return F.celu(x, node.real("alpha", 1.0))


@NONLINEARITIES.operator("Selu")
def selu(node: Node, x: Tensor) -> Tensor:
    """An exponential below 0, the whole scaled."""
    # The defaults are those of the standard, and of Klambauer et al. (arXiv:1706.02515).
    scaled = node.real("alpha", 1.67326319217681884765625)
    return node.real("gamma", 1.05070102214813232421875) * F.elu(x, scaled)


@NONLINEARITIES.operator("Shrink")
def shrink(node: Node, x: Tensor) -> Tensor:
    """0 near 0, and elsewhere nearer to it by a bias."""
    edge, bias = node.real("lambd", 0.5), node.real("bias", 0.0)
    low = torch.where(x < -edge, x + bias, torch.zeros_like(x))
    return torch.where(x > edge, x - bias, low)


def _over_the_rest(node: Node, x: Tensor, function: Callable[[Tensor, int], Tensor]) -> Tensor:
    """Up to opset 12 all axes from `axis` on are one."""
    axis = node.integer("axis", 1) % max(x.dim(), 1)
    flat = x.reshape(*x.shape[:axis], -1)
    return function(flat, -1).reshape(x.shape)


def _marked(x: Tensor, axis: int) -> Tensor:
    """1 at the first of the largest numbers along an axis, else 0."""
    return torch.zeros_like(x).scatter(axis, x.argmax(axis, keepdim=True), 1)


@NONLINEARITIES.operator("Hardmax", until=12)
def hardmax_over_the_rest(node: Node, x: Tensor) -> Tensor:
    """1 at the largest number over all axes from one on, else 0."""
    return _over_the_rest(node, x, _marked)


@NONLINEARITIES.operator("Hardmax", since=13)
def hardmax(node: Node, x: Tensor) -> Tensor:
    """1 at the largest number along an axis, else 0."""
    return _marked(x, node.integer("axis", -1))


@NONLINEARITIES.operator("Softmax", until=12)
def softmax_over_the_rest(node: Node, x: Tensor) -> Tensor:
    """Shares over all axes from one on."""
    return _over_the_rest(node, x, torch.softmax)


@NONLINEARITIES.operator("LogSoftmax", until=12)
def log_softmax_over_the_rest(node: Node, x: Tensor) -> Tensor:
    """Logarithms of shares over all axes from one on."""
    return _over_the_rest(node, x, torch.log_softmax)


@NONLINEARITIES.operator("Softmax", since=13)
def softmax(node: Node, x: Tensor) -> Tensor:
    """Shares along an axis."""
    return torch.softmax(x, node.integer("axis", -1))


@NONLINEARITIES.operator("LogSoftmax", since=13)
def log_softmax(node: Node, x: Tensor) -> Tensor:
    """Logarithms of shares along an axis."""
    return torch.log_softmax(x, node.integer("axis", -1))
