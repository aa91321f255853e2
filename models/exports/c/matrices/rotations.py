"""Packed rotations, applied a stage after the other."""

from typing import Any, cast

import torch
from torch import Tensor

from models.exports.c.matrices.product import Product, Span, at, pays, whole_product
from models.exports.c.parameters import encoded
from models.exports.c.source import Source
from models.math.precision import raised
from models.math.rotations import circle_partners
from models.parametrizations.packed_rotations import PackedRotationsLinear
from models.parametrizations.parts.packed_angles import PackedAngles
from models.parametrizations.rotation_svd import RotationSvdLinear


def packed_rotations(source: Source, linear: PackedRotationsLinear, span: Span) -> Product:
    """All stages, the first one first."""
    size = linear.in_features
    numbers = linear.rotations.count * 2 * (size // 2)
    if not pays(source, numbers=numbers, operations=2 * numbers, whole=size**2):
        return whole_product(source, span.name, linear.form().whole()[span.cut])
    stages = _Stages(source, linear.rotations, span, "stages", undone=False)

    def write(y: str, x: str, _t: str) -> str:
        lines: list[str] = []
        for index in range(span.count):
            place = at(y, index * size)
            lines += [source.call("copy", place, x, size), stages.write(place, index)]
        return "\n".join(lines)

    return Product(span.count * size, size, 0, write)


def rotation_svd(source: Source, linear: RotationSvdLinear, span: Span) -> Product:
    """`U diag(s) V^T x`: V's stages are undone, the last one first, and U's are applied."""
    size = linear.in_features
    numbers = (linear.u.count + linear.v.count) * 2 * (size // 2) + size
    if not pays(source, numbers=numbers, operations=2 * numbers, whole=size**2):
        return whole_product(source, span.name, linear.form().whole()[span.cut])
    u = _Stages(source, linear.u, span, "u", undone=False)
    v = _Stages(source, linear.v, span, "v", undone=True)
    sigma = source.tables.numbers(f"{span.name}_sigma", linear.s[span.cut], "singular values")

    def write(y: str, x: str, _t: str) -> str:
        lines: list[str] = []
        for index in range(span.count):
            place = at(y, index * size)
            lines += [
                source.call("copy", place, x, size),
                v.write(place, index),
                source.call("stretch", place, at(sigma, index * size), size),
                u.write(place, index),
            ]
        return "\n".join(lines)

    return Product(span.count * size, size, 0, write)


class _Stages:
    """The angles of a span's matrices, in the order in which `rotations.c` reads them.

    Of few bits they are the integers of the parameter; else there are cosines and sines.
    """

    def __init__(
        self, source: Source, angles: PackedAngles, span: Span, name: str, *, undone: bool
    ) -> None:
        self._source, self._size, self._count = source, angles.size, angles.count
        self._undone = undone
        tables, title, about = source.tables, f"{span.name}_{name}", "stage after stage"
        if tables.bits is None:
            chosen = self._ordered(raised(angles.theta), angles, span)
            cosines = tables.numbers(f"{title}_cos", chosen.cos(), about)
            self._suffix, self._tables = "", (cosines, tables.numbers(f"{title}_sin", chosen.sin()))
        else:
            found = encoded(angles, "theta", tables.bits)
            chosen = self._ordered(found.integers.to(torch.int64), angles, span)
            self._suffix = str(found.bits)
            self._tables = (tables.angles(title, chosen, found.bits, about),)

    def write(self, vector: str, matrix: int) -> str:
        """Apply those of a matrix to a vector in place."""
        offset = matrix * self._count * (self._size // 2)
        first, step = (self._count - 1, -1) if self._undone else (0, 1)
        return self._source.call(
            f"rotations{self._suffix}",
            vector,
            *(at(table, offset) for table in self._tables),
            self._size,
            first,
            step,
            self._count,
        )

    def _ordered(self, values: Tensor, angles: PackedAngles, span: Span) -> Tensor:
        """Angles of the first coordinate of each pair `[G, K, n // 2]`."""
        places = _first_places(angles.size, angles.count)
        signed = angles.spread(values)[span.cut]
        chosen = signed.gather(2, places.expand(len(signed), -1, -1))
        return -chosen.flip(1) if self._undone else chosen


def _first_places(size: int, count: int) -> Tensor:
    """The smaller coordinate of each pair, `[K, n // 2]`, in the order of `rotations.c`.

    In stage k pairs whose places add up to k come first, upwards; then those that add up to
    k + odd; then, of an even size, the one that the last coordinate takes.
    """
    # torch's lists have no types.
    partners = cast(list[list[int]], cast(Any, circle_partners(size, count)).tolist())
    inside = size - 1 if size % 2 == 0 else size
    rows: list[list[int]] = []
    for stage, partner in enumerate(partners):
        smaller = [one for one in range(size) if one < partner[one]]
        order = {one: (partner[one] >= inside, one + partner[one] != stage, one) for one in smaller}
        rows.append(sorted(smaller, key=order.__getitem__))
    return torch.tensor(rows, dtype=torch.int64).view(count, size // 2)
