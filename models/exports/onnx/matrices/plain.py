"""Matrices as they are."""

from torch import Tensor

from models.errors import ExportError
from models.exports.onnx.graph import Graph
from models.exports.onnx.matrices.stored import Stored
from models.linear import StructuredLinear


def matrices(graph: Graph, linear: StructuredLinear) -> Stored:
    """All entries."""
    weight = whole_matrices(linear)
    count, rows, columns = weight.shape
    return Stored(graph, (count, rows, columns), whole=lambda: graph.constant(weight))


def whole_matrices(linear: StructuredLinear) -> Tensor:
    """`[G, out, in]`.

    Raises:
        ExportError: there are none: another one is applied to each vector.
    """
    try:
        return linear.form().whole()
    except TypeError as error:
        raise ExportError(f"there is no ONNX writer for these matrices: {error}") from error
