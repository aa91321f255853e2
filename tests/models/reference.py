"""Plain and slow forms of the structured matrices, which the fast ones are held against."""

import torch
from torch import Tensor


def reflector(y: Tensor) -> Tensor:
    """H(y) as a matrix; the identity for y = 0."""
    identity = torch.eye(len(y), dtype=y.dtype)
    return identity if not y.any() else identity - 2 * torch.outer(y, y) / (y @ y)


def reflector_product(rows: Tensor) -> Tensor:
    """H(y_0) H(y_1) ... H(y_{m-1}), one reflector after the other."""
    product = torch.eye(rows.shape[1], dtype=rows.dtype)
    for y in rows:
        product = product @ reflector(y)
    return product


def staircase(packed: Tensor, size: int) -> Tensor:
    """Rows with 0, 1, 2, ... leading zeros from their packed entries."""
    rows: list[Tensor] = []
    position = 0
    while position < len(packed):
        length = size - len(rows)
        row = torch.cat((packed.new_zeros(size - length), packed[position : position + length]))
        rows.append(row)
        position += length
    return torch.stack(rows) if rows else packed.new_zeros(0, size)


def circle_schedule(size: int) -> list[list[tuple[int, int]]]:
    """Pairs (a, b), a < b, stage by stage: the circle method, pair by pair."""
    even = size + size % 2
    stages: list[list[tuple[int, int]]] = [[] for _ in range(even - 1)]
    for b in range(1, size):
        for a in range(b):
            stages[(a + b if b < even - 1 else 2 * a) % (even - 1)].append((a, b))
    return stages


def rotation(size: int, a: int, b: int, angle: Tensor) -> Tensor:
    """The rotation of coordinates a < b as a matrix."""
    matrix = torch.eye(size, dtype=angle.dtype)
    matrix[a, a] = matrix[b, b] = angle.cos()
    matrix[a, b], matrix[b, a] = angle.sin(), -angle.sin()
    return matrix


def rotation_product(size: int, stages: list[list[tuple[int, int]]], angles: Tensor) -> Tensor:
    """Every rotation of every stage, one after the other; `angles` is [K, floor(n / 2)]."""
    product = torch.eye(size, dtype=angles.dtype)
    for stage, pairs in enumerate(stages):
        for place, (a, b) in enumerate(pairs):
            product = rotation(size, a, b, angles[stage, place]) @ product
    return product


def reflected(rows: Tensor, h: Tensor) -> list[Tensor]:
    """What h is before each reflector and after all of them; the first row reflects first."""
    states = [h]
    for u in rows:
        states.append(states[-1] - 2 * (u @ states[-1]) / (u @ u) * u)
    return states


def reflection_gradients(rows: Tensor, states: list[Tensor], g: Tensor) -> tuple[Tensor, Tensor]:
    """dL/drows and dL/dh of `reflected` from g = dL/d(its end), by the papers' closed form.

    With a = 2 u^T h / |u|^2 and b = 2 u^T g / |u|^2, where h is what the reflector was given:
    dL/dh = g - b u and dL/du = -a g - b h + a b u.
    """
    by_row: list[Tensor] = []
    for u, h in zip(reversed(rows), reversed(states[:-1]), strict=True):
        a, b = 2 * (u @ h) / (u @ u), 2 * (u @ g) / (u @ u)
        by_row.append(-a * g - b * h + a * b * u)
        g = g - b * u
    return torch.stack(by_row[::-1]), g


def skew(packed: Tensor, size: int) -> Tensor:
    """A skew matrix from its entries above the diagonal, row after row."""
    matrix = torch.zeros(size, size, dtype=packed.dtype)
    numbers = iter(packed.tolist())
    for row in range(size):
        for column in range(row + 1, size):
            number = next(numbers)
            matrix[row, column], matrix[column, row] = number, -number
    return matrix


def skew_hermitian(packed: Tensor) -> Tensor:
    """A skew-Hermitian matrix: real parts below the diagonal, imaginary ones on it and above."""
    size = packed.shape[-1]
    matrix = torch.zeros(size, size, dtype=torch.complex128)
    for row in range(size):
        matrix[row, row] = 1j * packed[row, row]
        for column in range(row):
            entry = torch.complex(packed[row, column], packed[column, row])
            matrix[row, column], matrix[column, row] = entry, -entry.conj()
    return matrix
