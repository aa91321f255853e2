"""Unitary matrices of phases, reflections and Fourier transforms, applied factor by factor."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from models.exports.c.matrices.product import Product, Span, at, complex_product, pays
from models.exports.c.parameters import Stored, encoded, integers
from models.exports.c.source import Source
from models.exports.c.text import number
from models.math.precision import raised
from models.math.unitary import hashed_order
from models.parametrizations.unitary_fft import UnitaryFftLinear


def unitary_fft(source: Source, linear: UnitaryFftLinear, span: Span) -> Product:
    """`D_3 R_2 F^-1 D_2 Pi R_1 F D_1` on vectors `(re | im)`, for a single matrix.

    Both transforms are without the factor `1 / sqrt(n)`; Pi has `1 / n`.
    """
    size = linear.slot.in_features
    # Diagonals, vectors, roots and places; products of both transforms and of the rest.
    numbers = 6 * size + 4 * size + 2 * size + size
    stages = sum(4 * size * (prime + 1) for prime in _primes(size))
    if not pays(source, numbers=numbers, operations=2 * stages + 28 * size, whole=3 * size**2):
        whole = linear.form().whole()[span.start]
        real, imaginary = Stored(whole[:size, :size]), Stored(whole[size:, :size])
        return complex_product(source, span.name, real, imaginary)
    tables, name = source.tables, span.name
    turn, reflect = _diagonals(source, linear, span), _reflections(source, linear, span)
    roots = tables.numbers(f"{name}_roots", _roots(size), "roots of one (cos | sin)")
    share = number(torch.tensor(1 / size).item())
    order = tables.integers(f"{name}_order", hashed_order(size), "which number goes to each place")

    def write(y: str, x: str, t: str) -> str:
        return "\n".join(
            [
                source.call("copy", y, x, 2 * size),
                turn(y, 0),
                source.call("fourier", y, t, roots, size, "-1.0f"),
                reflect(y, 0),
                source.call("copy", t, y, 2 * size),
                f"for (int j = 0; j < {size}; j++) {{",
                f"    ({y})[j] = ({t})[{order}[j]] * {share};",
                f"    ({y})[{size} + j] = ({t})[{size} + {order}[j]] * {share};",
                "}",
                turn(y, 1),
                source.call("fourier", y, t, roots, size, "1.0f"),
                reflect(y, 1),
                turn(y, 2),
            ]
        )

    return Product(2 * size, 2 * size, 2 * size, write)


def _diagonals(source: Source, linear: UnitaryFftLinear, span: Span) -> Callable[[str, int], str]:
    """`v *= D` for each of the three diagonals."""
    tables, size, name = source.tables, linear.slot.in_features, f"{span.name}_phases"
    about = "diagonals, the first one first"
    if tables.bits is None:
        angles = raised(linear.phases)[span.start]
        both = torch.cat((angles.cos(), angles.sin()), dim=-1)
        table, function, step = tables.numbers(name, both, about), "phases", 2 * size
    else:
        found = encoded(linear, "phases", tables.bits)
        table = tables.angles(name, found.integers[span.start], found.bits, about)
        function, step = f"phases{found.bits}", size
    return lambda v, index: source.call(function, v, at(table, index * step), size)


def _reflections(source: Source, linear: UnitaryFftLinear, span: Span) -> Callable[[str, int], str]:
    """`v -= z (z^* v)` for both vectors z."""
    tables, size = source.tables, linear.slot.in_features
    if tables.bits is None:
        rows = raised(linear.reflections)
    else:
        rows = integers(linear, "reflections", tables.bits)
    name, starts = f"{span.name}_reflections", [0, 0]
    table = tables.reflectors(name, rows[span.start], "vectors (re | im)", starts=starts)
    step = table.encoding.places(2 * size)

    def write(v: str, index: int) -> str:
        scale = [] if table.scale is None else [f"{table.scale.name}[{index}]"]
        function = f"reflect_complex{table.encoding.suffix}"
        return source.call(function, v, at(table.name, index * step), *scale, size)

    return write


def _roots(size: int) -> Tensor:
    angles = 2 * math.pi * torch.arange(size, dtype=torch.float64) / size
    return torch.cat((angles.cos(), angles.sin()))


def _primes(size: int) -> list[int]:
    """The prime factors of a size, each as often as it divides it."""
    found: list[int] = []
    prime = 2
    while size > 1:
        while size % prime == 0:
            found.append(prime)
            size //= prime
        prime += 1
    return found
