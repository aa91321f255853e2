"""Two thin matrices, with and without a diagonal."""

from models.exports.onnx.graph import Graph
from models.exports.onnx.matrices.numbers import parameter
from models.exports.onnx.matrices.stored import Factors, Stored
from models.forms import Thin
from models.linear import StructuredLinear
from models.parametrizations.parts.low_rank_factors import LowRankLinear


def low_rank(graph: Graph, linear: LowRankLinear) -> Stored:
    """L, R and D as they are; rows that are brought to their norms are stored as they then are.

    Rounded ones are brought to them when the file is loaded.
    """
    thin = linear.form().parts()
    assert isinstance(thin, Thin)

    def factors() -> Factors:
        left, right = (parameter(graph, linear, side) for side in ("left", "right"))
        return _factors(graph, thin, left, right)

    return Stored(graph, _shape(thin), factors=factors)


def thin_factors(graph: Graph, linear: StructuredLinear) -> Stored:
    """The factors of a form that has some, whatever they are made of."""
    thin = linear.form().parts()
    assert isinstance(thin, Thin)

    def factors() -> Factors:
        left, right = graph.constant(thin.left), graph.constant(thin.right)
        return _factors(graph, thin, left, right)

    return Stored(graph, _shape(thin), factors=factors)


def _factors(graph: Graph, thin: Thin, left: str, right: str) -> Factors:
    return Factors(
        left=left,
        right=right,
        diagonal=None if thin.diagonal is None else graph.constant(thin.diagonal),
        count=thin.left.shape[0],
        num_right=thin.right.shape[0],
        rows=thin.left.shape[1],
        columns=thin.right.shape[2],
    )


def _shape(thin: Thin) -> tuple[int, int, int]:
    return thin.left.shape[0], thin.left.shape[1], thin.right.shape[2]
