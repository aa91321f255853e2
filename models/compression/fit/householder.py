"""Dense to `householder`: the nearest product of m reflectors."""

import torch
from torch import Tensor

from models.compression.orthogonal.reflectors import (
    padded,
    product_of,
    reduced_staircase,
    rows_of,
    staircase_of,
    write_rows_,
)
from models.compression.orthogonal.rotation_planes import best_reflections
from models.compression.target import Target, weight_errors
from models.math.linalg import svd
from models.parametrizations.householder import HouseholderLinear


def fit_householder_(linear: HouseholderLinear, target: Target) -> None:
    """Put the most turned planes of the nearest orthogonal matrices in reflectors, in place.

    Optimal for orthogonal matrices whenever the count fits whole planes, and monotone in m for all;
    see `best_reflections`.
    """
    count = _count(linear)
    rows = torch.stack([staircase_reflections(matrix, count) for matrix in target.weight])
    if isinstance(target.earlier, HouseholderLinear):
        before = padded(rows_of(target.earlier.u), count)
        errors = [weight_errors(target.weight, product_of(each)) for each in (rows, before)]
        rows = torch.where((errors[0] <= errors[1]).view(-1, 1, 1), rows, before)
    write_rows_(linear.u, rows)


def staircase_reflections(weight: Tensor, count: int) -> Tensor:
    """The best few reflections of W `[n, n]` as a staircase `[count, n]`."""
    if count == len(weight):
        left, _, right = svd(weight)
        return staircase_of((left @ right).unsqueeze(0), count)[0]
    return reduced_staircase(best_reflections(weight, count), count)


def _count(linear: HouseholderLinear) -> int:
    return linear.u.count + (linear.u.sign is not None)
