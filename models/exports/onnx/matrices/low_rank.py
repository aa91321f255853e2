"""Two thin matrices, with and without a diagonal."""

from models.exports.onnx.graph import Graph
from models.exports.onnx.matrices.stored import Factors, Stored
from models.forms import Thin
from models.linear import StructuredLinear


def low_rank(graph: Graph, linear: StructuredLinear) -> Stored:
    """L, R and D as they are; rows that are brought to their norms are stored as they then are."""
    thin = linear.form().parts()
    assert isinstance(thin, Thin)

    def factors() -> Factors:
        return Factors(
            left=graph.constant(thin.left),
            right=graph.constant(thin.right),
            diagonal=None if thin.diagonal is None else graph.constant(thin.diagonal),
            count=thin.left.shape[0],
            num_right=thin.right.shape[0],
            rows=thin.left.shape[1],
            columns=thin.right.shape[2],
        )

    shape = thin.left.shape[0], thin.left.shape[1], thin.right.shape[2]
    return Stored(graph, shape, factors=factors)
