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
