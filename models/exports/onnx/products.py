"""Matrix products in the form that the matrices have: whole, or low rank plus a diagonal."""

from torch import Tensor

from models.architectures.inputs import InputLayer
from models.errors import ExportError
from models.exports.onnx.graph import Graph
from models.forms import Form, Thin
from models.linear import Affine


def multiply(graph: Graph, form: Form, x: str) -> str:
    """`x W_g^T` for each g: `[..., in]` -> `[..., G*out]`.

    Raises:
        ExportError: nothing writes matrices of this form.
    """
    parts = form.parts()
    if isinstance(parts, Thin):
        return expand(graph, parts, project(graph, parts, x), x)
    return graph.apply("MatMul", x, graph.constant(whole(form).flatten(0, 1).t()))


def whole(form: Form) -> Tensor:
    """The matrices `[G, out, in]` of whatever form.

    Raises:
        ExportError: there are none.
    """
    try:
        return form.whole()
    except TypeError as error:
        raise ExportError(f"there is no ONNX writer for these matrices: {error}") from error


def multiply_add(graph: Graph, form: Form, x: str, addend: str, *, num_matrices: int) -> list[str]:
    """`x W_g^T + addend_g` for each g, as G values `[..., out]`; `addend` is `[..., G*out]`."""
    return cut(graph, graph.apply("Add", multiply(graph, form, x), addend), num_matrices)


def affine(graph: Graph, layer: InputLayer, x: str) -> str:
    """`x W^T + b` of a plain or structured layer: `[..., in]` -> `[..., G*out]`."""
    if isinstance(layer, Affine):
        product = graph.apply("MatMul", x, graph.constant(layer.plain_weight().t()))
    else:
        product = multiply(graph, layer.linear.form(), x)
    return (
        product if layer.bias is None else graph.apply("Add", product, graph.constant(layer.bias))
    )


def project(graph: Graph, thin: Thin, x: str) -> str:
    """`x R^T` for each R, side by side: `[..., in]` -> `[..., (G/s)*d]`."""
    return graph.apply("MatMul", x, graph.constant(thin.right.flatten(0, 1).t()))


def expand(graph: Graph, thin: Thin, inner: str, x: str) -> str:
    """`inner L_g^T + x * D_g` for each g, side by side; `inner` as `project` gives it."""
    num_right, rank, _ = thin.right.shape
    lefts = thin.left.reshape(num_right, -1, rank).mT
    parts = [
        graph.apply("MatMul", part, graph.constant(left))
        for part, left in zip(cut(graph, inner, num_right), lefts, strict=True)
    ]
    product = joined(graph, parts)
    if thin.diagonal is None:
        return product
    num_matrices = joined(graph, [x] * thin.left.shape[0])
    kept = graph.apply("Mul", num_matrices, graph.constant(thin.diagonal.flatten()))
    return graph.apply("Add", product, kept)


def cut(graph: Graph, value: str, parts: int) -> list[str]:
    """The last dimension in equal parts."""
    return [value] if parts == 1 else graph.apply_many("Split", value, outputs=parts, axis=-1)


def joined(graph: Graph, parts: list[str]) -> str:
    """Values side by side in the last dimension."""
    return parts[0] if len(parts) == 1 else graph.apply("Concat", *parts, axis=-1)
