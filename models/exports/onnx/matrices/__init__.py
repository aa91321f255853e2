"""How a file stores the matrices of each parametrization: `stored`, over a registry of recipes."""

from collections.abc import Callable, Mapping
from typing import Any

from models.exports.onnx.graph import Graph
from models.exports.onnx.matrices.low_rank import low_rank, thin_factors
from models.exports.onnx.matrices.plain import dense, matrices
from models.exports.onnx.matrices.reflectors import householder, householder_svd
from models.exports.onnx.matrices.rotations import packed_rotations, rotation_svd
from models.exports.onnx.matrices.skew import factorized_svd
from models.exports.onnx.matrices.stored import Factors, Stored
from models.exports.onnx.matrices.unitary import (
    complex_dense,
    complex_halves,
    unitary_fft,
    unitary_full,
)
from models.forms import Thin
from models.linear import StructuredLinear
from models.parametrizations.dense import ComplexDenseLinear, DenseLinear
from models.parametrizations.factorized_svd import FactorizedSvdLinear
from models.parametrizations.householder import HouseholderLinear
from models.parametrizations.householder_svd import HouseholderSvdLinear
from models.parametrizations.low_rank import LowRankLinear
from models.parametrizations.low_rank_diagonal import LowRankDiagonalLinear
from models.parametrizations.packed_rotations import PackedRotationsLinear
from models.parametrizations.rotation_svd import RotationSvdLinear
from models.parametrizations.unitary_fft import UnitaryFftLinear
from models.parametrizations.unitary_full import UnitaryFullLinear

__all__ = ["Factors", "Stored", "stored_layers"]

Recipe = Callable[[Graph, Any], Stored]

_RECIPES: Mapping[type[StructuredLinear], Recipe] = {
    DenseLinear: dense,
    ComplexDenseLinear: complex_dense,
    LowRankLinear: low_rank,
    LowRankDiagonalLinear: low_rank,
    HouseholderLinear: householder,
    HouseholderSvdLinear: householder_svd,
    PackedRotationsLinear: packed_rotations,
    RotationSvdLinear: rotation_svd,
    FactorizedSvdLinear: factorized_svd,
    UnitaryFftLinear: unitary_fft,
    UnitaryFullLinear: unitary_full,
}
"""Parametrizations of which something other than their form is stored."""


def stored_layers(
    graph: Graph, linear: StructuredLinear, *, factored: bool | None = None
) -> list[Stored]:
    """The matrices of each layer, stored by whatever takes fewer bytes.

    With `factored` they keep their factors where a product through these takes fewer operations,
    which is what their `form` says; else they are whole. None: as the graph says.

    Raises:
        ExportError: there are no such matrices: another one is applied to each vector.
    """
    factored = graph.root.factored if factored is None else factored
    if linear.members:
        return [_stored(graph, member, factored=factored) for member in linear.members]
    return _stored(graph, linear, factored=factored).split(linear.slot.layers)


def _stored(graph: Graph, linear: StructuredLinear, *, factored: bool) -> Stored:
    plain = _PLAIN[linear.slot.field]
    has_factors = isinstance(linear.form().parts(), Thin)
    recipe = _RECIPES.get(type(linear), thin_factors if has_factors else plain)
    if factored and has_factors:
        return recipe(graph, linear)
    root = graph.root
    if recipe is not plain and _bytes(recipe, linear, root) > _bytes(plain, linear, root):
        recipe = plain
    return recipe(graph, linear).without_factors()


def _bytes(recipe: Recipe, linear: StructuredLinear, root: Graph) -> int:
    """What a recipe's numbers and nodes take in a file."""
    graph = Graph(bits=root.bits, dequantizes=root.dequantizes)
    recipe(graph, linear).whole()
    return graph.bytes()


_PLAIN: Mapping[str, Recipe] = {"real": matrices, "complex": complex_halves}
"""How matrices are stored that have neither a recipe nor factors, or would take more by them."""
