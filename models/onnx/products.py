"""Matrix products in the form that the matrices have: whole, or low rank plus a diagonal."""

from collections.abc import Callable, Mapping
from typing import Any

from models.architectures.inputs import InputLayer
from models.linear import Affine
from models.onnx.graph import Graph
from models.ops.factors import DenseFactors, Factors, LowRankFactors


def multiply(graph: Graph, factors: Factors, x: str) -> str:
    """`x W_g^T` for each g: `[..., in]` -> `[..., G*out]`."""
    return FORMS[type(factors)](graph, factors, x)


def advance(graph: Graph, factors: Factors, x: str, addend: str, *, copies: int) -> list[str]:
    """`x W_g^T + addend_g` for each g, as G values `[..., out]`; `addend` is `[..., G*out]`."""
    return cut(graph, graph.apply("Add", multiply(graph, factors, x), addend), copies)


def affine(graph: Graph, layer: InputLayer, x: str) -> str:
    """`x W^T + b` of a plain or structured layer: `[..., in]` -> `[..., G*out]`."""
    if isinstance(layer, Affine):
        product = graph.apply("MatMul", x, graph.constant(layer.plain_weight().t()))
    else:
        product = multiply(graph, layer.linear.factors(), x)
    return (
        product if layer.bias is None else graph.apply("Add", product, graph.constant(layer.bias))
    )


def project(graph: Graph, factors: LowRankFactors, x: str) -> str:
    """`x R^T` for each R, side by side: `[..., in]` -> `[..., (G/s)*d]`."""
    return graph.apply("MatMul", x, graph.constant(factors.right.flatten(0, 1).t()))


def expand(graph: Graph, factors: LowRankFactors, inner: str, x: str) -> str:
    """`inner L_g^T + x * D_g` for each g, side by side; `inner` as `project` gives it."""
    readers, rank, _ = factors.right.shape
    lefts = factors.left.reshape(readers, -1, rank).mT
    parts = [
        graph.apply("MatMul", part, graph.constant(left))
        for part, left in zip(cut(graph, inner, readers), lefts, strict=True)
    ]
    product = joined(graph, parts)
    if factors.diagonal is None:
        return product
    copies = joined(graph, [x] * factors.left.shape[0])
    kept = graph.apply("Mul", copies, graph.constant(factors.diagonal.flatten()))
    return graph.apply("Add", product, kept)


def cut(graph: Graph, value: str, parts: int) -> list[str]:
    """The last dimension in equal parts."""
    return [value] if parts == 1 else graph.apply_many("Split", value, outputs=parts, axis=-1)


def joined(graph: Graph, parts: list[str]) -> str:
    """Values side by side in the last dimension."""
    return parts[0] if len(parts) == 1 else graph.apply("Concat", *parts, axis=-1)


def _dense(graph: Graph, factors: DenseFactors, x: str) -> str:
    return graph.apply("MatMul", x, graph.constant(factors.weight.flatten(0, 1).t()))


def _low_rank(graph: Graph, factors: LowRankFactors, x: str) -> str:
    return expand(graph, factors, project(graph, factors, x), x)


FORMS: Mapping[type[Factors], Callable[[Graph, Any, str], str]] = {
    DenseFactors: _dense,
    LowRankFactors: _low_rank,
}
"""The registry of forms; each takes the factors of its own class."""
