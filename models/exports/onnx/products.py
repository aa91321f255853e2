"""Matrix products: with whole matrices, or through their factors."""

from models.architectures.inputs import InputLayer
from models.exports.onnx.graph import Graph
from models.exports.onnx.matrices import Factors, Stored, stored_layers
from models.exports.onnx.matrices.arithmetic import transposed
from models.exports.onnx.matrices.numbers import parameter
from models.linear import Affine


def multiply(graph: Graph, matrices: Stored, x: str) -> str:
    """`x W_g^T` for each g: `[..., in]` -> `[..., G*out]`."""
    factors = matrices.factors()
    if factors is not None:
        return expand(graph, factors, project(graph, factors, x), x)
    return graph.apply("MatMul", x, _columns(graph, matrices.whole(), matrices.shape[2]))


def multiply_add(graph: Graph, matrices: Stored, x: str, addend: str) -> list[str]:
    """`x W_g^T + addend_g` for each g, as G values `[..., out]`; `addend` is `[..., G*out]`."""
    total = graph.apply("Add", multiply(graph, matrices, x), addend)
    return cut(graph, total, matrices.shape[0])


def affine(graph: Graph, layer: InputLayer, x: str) -> str:
    """`x W^T + b` of a plain or structured layer: `[..., in]` -> `[..., G*out]`."""
    if isinstance(layer, Affine):
        weight = graph.root.apply("Transpose", parameter(graph.root, layer, "weight"), perm=[1, 0])
        product = graph.apply("MatMul", x, weight)
    else:
        (matrices,) = stored_layers(graph, layer.linear)
        product = multiply(graph, matrices, x)
    return (
        product if layer.bias is None else graph.apply("Add", product, graph.constant(layer.bias))
    )


def project(graph: Graph, factors: Factors, x: str) -> str:
    """`x R^T` for each R, side by side: `[..., in]` -> `[..., (G/s)*d]`."""
    return graph.apply("MatMul", x, _columns(graph, factors.right, factors.columns))


def expand(graph: Graph, factors: Factors, inner: str, x: str) -> str:
    """`inner L_g^T + x * D_g` for each g, side by side; `inner` as `project` gives it."""
    root, num_right = graph.root, factors.num_right
    lefts = factors.left
    if num_right < factors.count:
        # Matrices that read through one R stand in one matrix.
        served = factors.count // num_right * factors.rows
        lefts = root.apply("Reshape", lefts, root.integers(num_right, served, -1))
    lefts = transposed(root, lefts)
    each = [lefts] if num_right == 1 else root.apply_many("Split", lefts, outputs=num_right, axis=0)
    first = root.integers(0)
    parts = [
        graph.apply("MatMul", part, root.apply("Squeeze", left, first))
        for part, left in zip(cut(graph, inner, num_right), each, strict=True)
    ]
    product = joined(graph, parts)
    if factors.diagonal is None:
        return product
    repeated = joined(graph, [x] * factors.count)
    diagonal = root.apply("Reshape", factors.diagonal, root.integers(-1))
    return graph.apply("Add", product, graph.apply("Mul", repeated, diagonal))


def cut(graph: Graph, value: str, parts: int) -> list[str]:
    """The last dimension in equal parts."""
    return [value] if parts == 1 else graph.apply_many("Split", value, outputs=parts, axis=-1)


def joined(graph: Graph, parts: list[str]) -> str:
    """Values side by side in the last dimension."""
    return parts[0] if len(parts) == 1 else graph.apply("Concat", *parts, axis=-1)


def _columns(graph: Graph, stack: str, width: int) -> str:
    """`[G, a, width]` -> `[width, G*a]`, once, when the file is loaded."""
    root = graph.root
    flat = root.apply("Reshape", stack, root.integers(-1, width))
    return root.apply("Transpose", flat, perm=[1, 0])
