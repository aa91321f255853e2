"""Unitary matrices of phases, reflections and Fourier transforms, applied factor by factor."""

import math

import torch
from torch import Tensor

from models.exports.c.matrices.product import Product, Span, at, complex_product, pays
from models.exports.c.source import Source
from models.math.precision import raised
from models.math.unitary import hashed_order
from models.math.weight_norm import unit_rows
from models.parametrizations.unitary_fft import UnitaryFftLinear


def unitary_fft(source: Source, linear: UnitaryFftLinear, span: Span) -> Product:
    """`D_3 R_2 F^-1 D_2 Pi R_1 F D_1` on vectors `(re | im)`, for a single matrix.

    Both transforms are without the factor `1 / sqrt(n)`, which is in D_3.
    """
    size = linear.slot.in_features
    # Diagonals, vectors, roots and places; products of both transforms and of the rest.
    numbers = 6 * size + 4 * size + 2 * size + size
    stages = sum(4 * size * (prime + 1) for prime in _primes(size))
    if not pays(numbers=numbers, operations=2 * stages + 28 * size, whole=3 * size**2):
        whole = linear.form().whole()[span.start]
        return complex_product(
            source, span.name, whole[:size, :size], whole[size:, :size], stored=False
        )
    tables, name = source.tables, span.name
    angles = raised(linear.phases)[span.start]
    shares = torch.tensor([[1.0], [1.0], [1 / size]], dtype=angles.dtype)
    diagonals = torch.cat((angles.cos() * shares, angles.sin() * shares), dim=-1)
    phases = tables.numbers(f"{name}_phases", diagonals, "diagonals (re | im), the first one first")
    vectors = math.sqrt(2) * unit_rows(raised(linear.reflections)[span.start])
    reflections = tables.numbers(
        f"{name}_reflections", vectors, "vectors (re | im) of length sqrt(2)"
    )
    roots = tables.numbers(f"{name}_roots", _roots(size), "roots of one (cos | sin)")
    order = tables.integers(f"{name}_order", hashed_order(size), "which number goes to each place")

    def write(y: str, x: str, t: str) -> str:
        return "\n".join(
            [
                source.call("copy", y, x, 2 * size),
                source.call("phases", y, phases, size),
                source.call("fourier", y, t, roots, size, "-1.0f"),
                source.call("reflect_complex", y, reflections, size),
                source.call("copy", t, y, 2 * size),
                f"for (int j = 0; j < {size}; j++) {{",
                f"    ({y})[j] = ({t})[{order}[j]];",
                f"    ({y})[{size} + j] = ({t})[{size} + {order}[j]];",
                "}",
                source.call("phases", y, at(phases, 2 * size), size),
                source.call("fourier", y, t, roots, size, "1.0f"),
                source.call("reflect_complex", y, at(reflections, 2 * size), size),
                source.call("phases", y, at(phases, 4 * size), size),
            ]
        )

    return Product(2 * size, 2 * size, 2 * size, write)


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
