"""The registry: how the products of each class of stored matrices are written."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch

from models.architectures.inputs import InputLayer
from models.errors import ExportError
from models.exports.c.matrices.fourier import unitary_fft
from models.exports.c.matrices.product import (
    Product,
    Span,
    ThinTables,
    complex_product,
    few_enough,
    looked_up,
    pays,
    thin_product,
    thin_tables,
    whole_product,
)
from models.exports.c.matrices.reflectors import householder, householder_svd
from models.exports.c.matrices.rotations import packed_rotations, rotation_svd
from models.exports.c.parameters import Stored, parameter
from models.exports.c.source import Source
from models.forms import Thin
from models.linear import Affine, StructuredLinear
from models.math.weight_norm import plain_rows
from models.parametrizations.dense import ComplexDenseLinear, DenseLinear
from models.parametrizations.householder import HouseholderLinear
from models.parametrizations.householder_svd import HouseholderSvdLinear
from models.parametrizations.low_rank_diagonal import LowRankDiagonalLinear
from models.parametrizations.packed_rotations import PackedRotationsLinear
from models.parametrizations.parts.low_rank_factors import LowRankLinear
from models.parametrizations.per_layer import PerLayerLinear
from models.parametrizations.rotation_svd import RotationSvdLinear
from models.parametrizations.unitary_fft import UnitaryFftLinear

Write: TypeAlias = Callable[[Source, Any, Span], Product]


def product(source: Source, linear: StructuredLinear, span: Span) -> Product:
    """`y = W_g x` for the matrices of a span, which all are of one layer.

    Raises:
        ExportError: nothing writes such matrices.
    """
    return PRODUCTS.get(type(linear), of_form)(source, linear, span)


def affine(source: Source, layer: InputLayer, name: str) -> Product:
    """`y = W x + b` of a plain or structured layer."""
    if isinstance(layer, Affine):
        plain = whole_product(source, name, parameter(layer, "weight", source.tables.bits))
    else:
        linear = layer.linear
        plain = product(source, linear, Span(name, 0, linear.num_matrices))
    return with_bias(source, plain, name, layer.bias)


def column_of(source: Source, layer: Affine, name: str) -> Product:
    """`y = W x + b` of one-hot x, whose place in C stands for it; of no place `y = b`."""
    weight = parameter(layer, "weight", source.tables.bits).transposed()
    table = source.tables.vectors(name, weight, "a column for each token")

    def write(y: str, x: str, _t: str) -> str:
        return looked_up(source, table, y, x)

    plain = Product(table.rows, table.columns, 0, write)
    return with_bias(source, plain, name, layer.bias)


def with_bias(source: Source, plain: Product, name: str, bias: torch.Tensor | None) -> Product:
    """A product, and a bias added to it."""
    if bias is None:
        return plain
    table = source.tables.numbers(f"{name}_bias", bias)

    def write(y: str, x: str, t: str) -> str:
        return plain.write(y, x, t) + "\n" + source.call("add", y, table, plain.rows)

    return Product(plain.rows, plain.columns, plain.scratch, write)


def of_form(source: Source, linear: StructuredLinear, span: Span) -> Product:
    """Matrices of any class, in the form in which the model applies them: thin ones, or whole."""
    form = linear.form().select(span.start, span.stop)
    parts = form.parts()
    if isinstance(parts, Thin) and few_enough(*_thin_sizes(*parts)):
        return thin_product(source, _made_tables(source, span, parts))
    try:
        whole = form.whole()
    except TypeError as error:
        raise ExportError(f"there is no C writer for these matrices: {error}") from error
    if linear.slot.field == "complex":
        rows, columns = linear.slot.out_features, linear.slot.in_features
        real, imaginary = whole[0, :rows, :columns], whole[0, rows:, :columns]
        return complex_product(source, span.name, Stored(real), Stored(imaginary))
    return whole_product(source, span.name, whole)


def narrow_middle(source: Source, linear: StructuredLinear, span: Span) -> ThinTables:
    """The tables of matrices that have a narrow middle, whether they are the smaller ones or not.

    Raises:
        ExportError: they have none.
    """
    own = _member(linear, span)
    write = _THIN.get(type(own[0]))
    if write is not None:
        return write(source, *own)
    parts = linear.form().select(span.start, span.stop).parts()
    if not isinstance(parts, Thin):
        raise ExportError(f"there is no C writer for the middle of {type(linear).__name__}")
    return _made_tables(source, span, parts)


def _made_tables(source: Source, span: Span, parts: Thin) -> ThinTables:
    left, right = Stored(parts.left), Stored(parts.right)
    return thin_tables(source, span, left, right, parts.diagonal)


def _dense(source: Source, linear: DenseLinear, span: Span) -> Product:
    weight = parameter(linear, "weight", source.tables.bits)
    return whole_product(source, span.name, weight[span.cut])


def _complex_dense(source: Source, linear: ComplexDenseLinear, span: Span) -> Product:
    weight = parameter(linear, "weight", source.tables.bits)[span.start]
    return complex_product(source, span.name, weight[0], weight[1])


def _low_rank(source: Source, linear: LowRankLinear, span: Span) -> Product:
    layer = _layer_of(linear, span)
    gates, shared_by = linear.slot.gates, linear.num_matrices // linear.num_right
    rights = slice(layer * gates // shared_by, ((layer + 1) * gates - 1) // shared_by + 1)
    left, right = plain_rows(linear.left), plain_rows(linear.right)
    of_layer = slice(layer * gates, (layer + 1) * gates)
    numbers, operations, whole = _thin_sizes(
        left[of_layer], right[rights], _diagonal(linear, of_layer)
    )
    if not pays(source, numbers=numbers, operations=operations, whole=whole):
        return whole_product(source, span.name, linear.form().whole()[span.cut])
    return thin_product(source, _low_rank_tables(source, linear, span))


def _low_rank_tables(source: Source, linear: LowRankLinear, span: Span) -> ThinTables:
    shared_by = linear.num_matrices // linear.num_right
    first, last = span.start // shared_by, (span.stop - 1) // shared_by
    left, right = (parameter(linear, name, source.tables.bits) for name in ("left", "right"))
    return thin_tables(
        source,
        span,
        left[span.cut],
        right[first : last + 1],
        _diagonal(linear, span.cut),
        right_key=(id(linear), first, last),
    )


def _diagonal(linear: LowRankLinear, cut: slice) -> torch.Tensor | None:
    return linear.diagonal[cut] if isinstance(linear, LowRankDiagonalLinear) else None


def _thin_sizes(
    left: torch.Tensor, right: torch.Tensor, diagonal: torch.Tensor | None
) -> tuple[int, int, int]:
    """Numbers and operations of the factors, and the entries of the matrices."""
    numbers = left.numel() + right.numel() + (0 if diagonal is None else diagonal.numel())
    whole = left.shape[0] * left.shape[1] * right.shape[-1]
    return numbers, numbers, whole


def _layer_of(linear: StructuredLinear, span: Span) -> int:
    return span.start // linear.slot.gates


def _member(linear: StructuredLinear, span: Span) -> tuple[StructuredLinear, Span]:
    """What stores a span, and which of its matrices these are."""
    if not linear.members:
        return linear, span
    layer, gates = _layer_of(linear, span), linear.slot.gates
    inside = Span(span.name, span.start - layer * gates, span.stop - layer * gates)
    return linear.members[layer], inside


def _per_layer(source: Source, linear: PerLayerLinear, span: Span) -> Product:
    return product(source, *_member(linear, span))


PRODUCTS: Mapping[type[StructuredLinear], Write] = {
    DenseLinear: _dense,
    ComplexDenseLinear: _complex_dense,
    LowRankLinear: _low_rank,
    LowRankDiagonalLinear: _low_rank,
    HouseholderLinear: householder,
    HouseholderSvdLinear: householder_svd,
    PackedRotationsLinear: packed_rotations,
    RotationSvdLinear: rotation_svd,
    UnitaryFftLinear: unitary_fft,
    PerLayerLinear: _per_layer,
}
"""Classes that are not named are written by `of_form`."""

_THIN: Mapping[type[StructuredLinear], Callable[[Source, Any, Span], ThinTables]] = {
    LowRankLinear: _low_rank_tables,
    LowRankDiagonalLinear: _low_rank_tables,
}
