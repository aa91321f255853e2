"""The last steps towards a target: L-BFGS over a module's own parameters."""

import torch
from torch import Tensor

from models.compression.target import weight_errors
from models.hooks import Projected
from models.linear import StructuredLinear

MOST_STEPS = 300
LEAST_CHANGE = 1e-8
"""Of the squared relative error, or of the parameters, that a step has to make."""


def polish_(linear: StructuredLinear, weight: Tensor, *, steps: int = MOST_STEPS) -> Tensor:
    """Lower `|W_g - A_g|^2` of all matrices together by L-BFGS, in place.

    A matrix for which that was no gain keeps its numbers; the parameters of each have its index in
    their first dimension. What bounds them (see `Projected`) holds afterwards.

    Returns:
        `|W_g - A_g|` of each matrix `[G]`, as it is then.
    """
    parameters = [p for p in linear.parameters() if p.numel()]
    before = _errors(linear, weight)
    if not parameters:
        return before
    start = [p.detach().clone() for p in parameters]
    scale = weight.square().sum().clamp_min(torch.finfo(weight.dtype).tiny)
    optimizer = torch.optim.LBFGS(
        parameters,
        max_iter=steps,
        history_size=20,
        tolerance_grad=1e-12,
        tolerance_change=LEAST_CHANGE,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = (_dense(linear) - weight).square().sum() / scale
        loss.backward()  # pyright: ignore[reportUnknownMemberType] -- untyped
        return loss

    with torch.enable_grad():
        optimizer.step(closure)  # pyright: ignore[reportUnknownMemberType] -- untyped
    with torch.no_grad():
        for part in linear.modules():
            if isinstance(part, Projected):
                part.project_()
        after = _errors(linear, weight)
        worse = ~(after < before)
        for parameter, value in zip(parameters, start, strict=True):
            parameter[worse] = value[worse]
            parameter.grad = None
    return torch.where(worse, before, after)


def _dense(linear: StructuredLinear) -> Tensor:
    identity = torch.eye(linear.in_features, dtype=torch.float64)
    columns = linear.apply_weight(identity)
    return columns.t().reshape(linear.num_matrices, linear.out_features, linear.in_features)


def _errors(linear: StructuredLinear, weight: Tensor) -> Tensor:
    with torch.no_grad():
        return weight_errors(weight, linear.dense_weight())
