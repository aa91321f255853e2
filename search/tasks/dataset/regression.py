"""Tasks that predict numbers: their loss, their metrics, and what predicting the mean costs."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from search.tasks.task import NOT_NEGATIVE, Range


def squared_error(output: Tensor, target: Tensor) -> Tensor:
    """Mean squared error of predictions and targets `[..., K]`."""
    return F.mse_loss(output, target)


class RegressionMeter:
    """Mean squared error, mean absolute error and R^2 of predictions `[..., K]`.

    All are means over the K targets. R^2 is `1 - sum (y - p)^2 / sum (y - mean y)^2` with the mean
    of the targets that were added; it is not defined, and NaN, where one never changes.

    Args:
        deviations: the unit of each target, where predictions and targets are scaled; None: 1.
    """

    def __init__(self, deviations: Sequence[float] | None = None) -> None:
        self._deviations = None if deviations is None else torch.tensor(deviations).double()
        self._count = 0
        self._origin = torch.zeros(())
        self._squares = torch.zeros((), dtype=torch.float64)
        self._absolutes = torch.zeros((), dtype=torch.float64)
        self._targets = torch.zeros((), dtype=torch.float64)
        self._target_squares = torch.zeros((), dtype=torch.float64)

    def add(self, output: Tensor, target: Tensor) -> None:
        """Add a batch's errors, in doubles: sums over many samples lose digits in singles."""
        given, wanted = _rows(output), _rows(target)
        if self._count == 0:
            # Squares of numbers far from 0 would cancel: they are taken from the first target.
            self._origin = wanted[0]
        error, moved = given - wanted, wanted - self._origin
        self._count += len(wanted)
        self._squares = self._squares + error.square().sum(dim=0)
        self._absolutes = self._absolutes + error.abs().sum(dim=0)
        self._targets = self._targets + moved.sum(dim=0)
        self._target_squares = self._target_squares + moved.square().sum(dim=0)

    @property
    def ranges(self) -> Mapping[str, Range]:
        """Errors; R^2 is 1 at best and has no least value."""
        return {"mse": NOT_NEGATIVE, "mae": NOT_NEGATIVE, "r2": Range(high=1.0)}

    def values(self) -> Mapping[str, float]:
        """`mse` and `mae` in the targets' own units, and `r2`."""
        unit = torch.ones(()) if self._deviations is None else self._deviations
        around = self._target_squares - self._targets.square() / self._count
        constant = bool((around <= 0).any())
        return {
            "mse": float((self._squares * unit.square()).mean() / self._count),
            "mae": float((self._absolutes * unit).mean() / self._count),
            "r2": math.nan if constant else float((1 - self._squares / around).mean()),
        }


def _rows(values: Tensor) -> Tensor:
    return values.detach().reshape(-1, values.shape[-1]).double().cpu()
