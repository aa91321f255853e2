"""Matrix products: with whole matrices, or through their factors."""

from collections.abc import Sequence

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


def multiply_add(graph: Graph, matrices: Stored, x: str, addends: Sequence[str]) -> list[str]:
    """`x W_g^T + addend_g` for each g: x `[B, in]` -> G values `[B, out]`.

    Addends are `[B, out]` or `[out]`. Each matrix has a product of its own, to which `Gemm` adds
    what is added: nothing is put together to be cut again.
    """
    factors = matrices.factors()
    if factors is not None:
        inner = project(graph, factors, x)
        return _expanded(graph, factors, inner, x, addends)
    flat = graph.root.apply("Reshape", matrices.whole(), graph.integers(-1, matrices.shape[2]))
    weights = _split(graph, flat, matrices.shape[0])
    return [
        graph.apply("Gemm", x, weight, addend, transB=1)
        for weight, addend in zip(weights, addends, strict=True)
    ]


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


def affine_each(graph: Graph, layer: InputLayer, x: str, parts: int) -> list[str]:
    """As `affine`, of all steps x `[T, B, in]`, in so many equal parts `[T, B, out]`.

    A bias is the weight of one more input, which is 1: nothing passes over all steps to add it.
    """
    if not isinstance(layer, Affine):
        return cut(graph, affine(graph, layer, x), parts)
    root = graph.root
    weight = parameter(root, layer, "weight")
    if layer.bias is not None:
        weight = root.apply("Concat", weight, graph.constant(layer.bias.unsqueeze(1)), axis=1)
        x = graph.apply("Pad", x, graph.integers(0, 0, 0, 0, 0, 1), graph.number(1.0))
    columns = root.apply("Transpose", weight, perm=[1, 0])
    return [graph.apply("MatMul", x, part) for part in cut(root, columns, parts)]


def project(graph: Graph, factors: Factors, x: str) -> str:
    """`x R^T` for each R, side by side: `[..., in]` -> `[..., (G/s)*d]`."""
    return graph.apply("MatMul", x, _columns(graph, factors.right, factors.columns))


def expand(graph: Graph, factors: Factors, inner: str, x: str) -> str:
    """`inner L_g^T + x * D_g` for each g, side by side; `inner` as `project` gives it."""
    return joined(graph, _expanded(graph, factors, inner, x, None))


def _expanded(
    graph: Graph, factors: Factors, inner: str, x: str, addends: Sequence[str] | None
) -> list[str]:
    seen, shared = cut(graph, inner, factors.num_right), factors.count // factors.num_right
    root = graph.root
    flat = root.apply("Reshape", transposed(root, factors.left), graph.integers(-1, factors.rows))
    lefts = _split(graph, flat, factors.count)
    diagonal = factors.diagonal
    diagonals = [] if diagonal is None else _split(graph, diagonal, factors.count)
    found: list[str] = []
    for place, left in enumerate(lefts):
        part = seen[place // shared]
        value = (
            graph.apply("MatMul", part, left)
            if addends is None
            else graph.apply("Gemm", part, left, addends[place])
        )
        if diagonals:
            value = graph.apply("Add", value, graph.apply("Mul", x, diagonals[place]))
        found.append(value)
    return found


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


def _split(graph: Graph, value: str, parts: int) -> list[str]:
    """The first dimension in equal parts, once, when the file is loaded."""
    if parts == 1:
        return [value]
    return graph.root.apply_many("Split", value, outputs=parts)
