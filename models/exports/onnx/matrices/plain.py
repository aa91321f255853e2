"""Matrices as they are."""

from torch import Tensor

from models.errors import ExportError
from models.exports.onnx.graph import Graph
from models.exports.onnx.matrices.numbers import parameter
from models.exports.onnx.matrices.stored import Stored
from models.linear import StructuredLinear
from models.parametrizations.dense import DenseLinear


def dense(graph: Graph, linear: DenseLinear) -> Stored:
    """W as it is stored."""
    shape = linear.num_matrices, linear.out_features, linear.in_features
    return Stored(graph, shape, whole=lambda: parameter(graph, linear, "weight"))


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
