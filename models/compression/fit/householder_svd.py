"""Dense to `householder_svd`: reflectors on both sides, and singular values in their interval."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from models.compression.fit.polish import polish_
from models.compression.orthogonal.reflectors import (
    padded,
    reduced_staircase,
    reflect,
    reflect_back,
    rows_of,
    staircase_of,
    sweep_,
    write_rows_,
)
from models.compression.orthogonal.rotation_planes import best_reflections
from models.compression.target import Target, sizes, weight_errors
from models.math.initialisation import generator_of, normal_
from models.math.linalg import svd
from models.parametrizations.householder_svd import HouseholderSvdLinear
from models.parametrizations.parts.staircase import Staircase

MOST_SWEEPS = 2
LEAST_GAIN = 1e-3
"""The share of the error by which a sweep has to lower it for another to follow."""
FIRST_STEPS = 80
"""Of L-BFGS, after which the best start is the one to go on with."""
EXACT = 1e-13
"""The relative error from which on a target counts as met."""


@dataclass(frozen=True, eq=False)
class _Solution:
    u: Tensor
    """`[G, m1, out]`"""
    v: Tensor
    """`[G, m2, in]`"""


def fit_householder_svd_(linear: HouseholderSvdLinear, target: Target) -> None:
    """Start from reflectors of the singular vectors and others, improve each, and keep the best.

    With m1 = m2 = m and a wide interval the first m singular triplets are exact from the start, so
    that the error never exceeds the truncated SVD's of rank m; with m = min(in, out) nothing is
    left. Of the improvements none makes the error larger, and the earlier solution is a start too.
    """
    weight, spectrum = target.weight, linear.spectrum
    m1, m2 = _count(linear.u), _count(linear.v)

    def values_of(solution: _Solution) -> Tensor:
        """The best singular values for given sides, within the interval."""
        inner = reflect_back(solution.u, weight)
        diagonal = reflect_back(solution.v, inner.mT).diagonal(dim1=-2, dim2=-1)
        return spectrum.values(spectrum.parameters(diagonal))

    def errors_of(solution: _Solution) -> Tensor:
        values = values_of(solution)
        return weight_errors(weight, _weight(solution, values))

    scale = sizes(weight)
    chosen: dict[str, Tensor] = {}
    errors = torch.full((len(weight),), torch.inf, dtype=weight.dtype)
    for start in _starts(target, m1, m2, scale=spectrum.centre):
        found, before = start, errors_of(start)
        for _ in range(MOST_SWEEPS):
            if bool((before <= EXACT * scale).all()):
                break
            swept = _swept(found, weight, values_of)
            after = errors_of(swept)
            found = _better(swept, after, found, before)
            settled = bool((after > (1 - LEAST_GAIN) * before).all())
            before = torch.minimum(before, after)
            if settled:
                break
        write_rows_(linear.u, found.u)
        write_rows_(linear.v, found.v)
        with torch.no_grad():
            linear.p.copy_(spectrum.parameters(values_of(found)))
        if bool((before > EXACT * scale).any()):
            # Which start ends best does not show before.
            before = polish_(linear, weight, steps=FIRST_STEPS)
        better = before < errors
        errors = torch.where(better, before, errors)
        chosen = {
            name: torch.where(better.view(-1, *[1] * (tensor.dim() - 1)), tensor, chosen[name])
            if chosen
            else tensor.clone()
            for name, tensor in linear.state_dict().items()
        }
        if bool((errors <= EXACT * scale).all()):
            break
    linear.load_state_dict(chosen)
    if bool((errors > EXACT * scale).any()):
        polish_(linear, weight)


def _starts(target: Target, m1: int, m2: int, *, scale: float) -> list[_Solution]:
    weight = target.weight
    left, _, right = svd(weight)
    starts = [_Solution(staircase_of(left, m1), staircase_of(right.mT, m2))]
    if isinstance(target.earlier, HouseholderSvdLinear):
        u, v = rows_of(target.earlier.u), rows_of(target.earlier.v)
        starts.append(_Solution(padded(u, m1), padded(v, m2)))
    if target.slot.in_features == target.slot.out_features and scale > 0:
        # Near the interval's centre times an orthogonal matrix both sides can share its planes.
        split = [_split(matrix, m1, m2) for matrix in weight]
        starts.append(_Solution(*(torch.stack(side) for side in zip(*split, strict=True))))
    generator = generator_of(0)
    starts.append(
        _Solution(
            _random_staircase(len(left), m1, left.shape[1], generator=generator),
            _random_staircase(len(left), m2, right.shape[2], generator=generator),
        )
    )
    return starts


def _random_staircase(
    num_matrices: int, count: int, size: int, *, generator: torch.Generator
) -> Tensor:
    """Rows `[G, count, n]` of length 1 in directions that nothing prefers."""
    rows = torch.empty(num_matrices, count, size, dtype=torch.float64)
    normal_(rows, 1.0, generator=generator)
    rows = rows.triu()
    return rows / rows.square().sum(-1, keepdim=True).sqrt()


def _split(weight: Tensor, m1: int, m2: int) -> tuple[Tensor, Tensor]:
    """The best m1 + m2 reflections of a square W, the first of them on the left, as staircases."""
    vectors = best_reflections(weight, m1 + m2)
    here = min(m1, (len(vectors) + 1) // 2) if len(vectors) <= 2 * min(m1, m2) else m1
    first, rest = vectors[:here], vectors[here:]
    return reduced_staircase(first, m1), reduced_staircase(rest.flip(0), m2)


def _swept(
    solution: _Solution, weight: Tensor, values_of: Callable[[_Solution], Tensor]
) -> _Solution:
    """Every reflector of both sides turned once, with singular values in between."""
    u, v = solution.u.clone(), solution.v.clone()
    inner = _scaled(values_of(solution), weight).mT
    # tr(W^T U S V^T) = tr((S V^T W^T) U), and with W^T = V S^T U^T likewise for V.
    sweep_(u, reflect(v, inner.contiguous()).mT @ weight.mT)
    half = _Solution(u, v)
    sweep_(v, reflect(u, _scaled(values_of(half), weight)).mT @ weight)
    return _Solution(u, v)


def _scaled(values: Tensor, like: Tensor) -> Tensor:
    """S `[G, out, in]` with the values on its diagonal."""
    return torch.zeros_like(like).diagonal_scatter(values, dim1=-2, dim2=-1)


def _weight(solution: _Solution, values: Tensor) -> Tensor:
    """`U S V^T`."""
    rows, columns = solution.u.shape[-1], solution.v.shape[-1]
    inner = _scaled(values, values.new_empty(values.shape[0], rows, columns))
    return reflect(solution.u, reflect(solution.v, inner.mT.contiguous()).mT.contiguous())


def _better(a: _Solution, a_errors: Tensor, b: _Solution, b_errors: Tensor) -> _Solution:
    """Matrix by matrix whichever has the smaller error."""
    take = (a_errors < b_errors).view(-1, 1, 1)
    return _Solution(torch.where(take, a.u, b.u), torch.where(take, a.v, b.v))


def _count(staircase: Staircase) -> int:
    return staircase.count + (staircase.sign is not None)
