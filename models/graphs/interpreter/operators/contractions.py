"""Products that are summed."""

import torch
from torch import Tensor

from models.graphs.interpreter.node import Node
from models.graphs.interpreter.operators.operator_table import OperatorTable
from models.graphs.interpreter.tensor_values import aligned

CONTRACTIONS = OperatorTable()


@CONTRACTIONS.operator("MatMul")
def matmul(_node: Node, a: Tensor, b: Tensor) -> Tensor:
    """A product of matrices, batches broadcast."""
    return torch.matmul(*aligned(a, b))


@CONTRACTIONS.operator("Gemm")
def gemm(node: Node, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    """`alpha A B + beta C`; `transA` and `transB` transpose A and B."""
    a, b = aligned(a, b)
    a = a.T if node.flag("transA") else a
    b = b.T if node.flag("transB") else b
    alpha, beta = node.real("alpha", 1.0), node.real("beta", 1.0)
    product = a @ b if alpha == 1 else alpha * (a @ b)
    if c is None or beta == 0:
        return product
    return product + (c if beta == 1 else beta * c)


@CONTRACTIONS.operator("Einsum")
def einsum(node: Node, *values: Tensor) -> Tensor:
    """The sum of products that an equation names."""
    return torch.einsum(node.text("equation", ""), *aligned(*values))
