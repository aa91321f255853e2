"""The optimizers of `search.training.optimizers` over K members at once.

What is kept of past steps, and the gradients, stand in tensors `[K, P]`, a member's P numbers in
one row, so that a step is a few operations however many parameters and members there are. The
arithmetic is that of torch's own optimizers, in their order.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor

from search.training.trial_spec import OptimizerName, TrainingSpec

QUANTITIES: Final[Mapping[OptimizerName, tuple[str, ...]]] = {
    "adam": ("exp_avg", "exp_avg_sq"),
    "rmsprop": ("square_avg",),
    "adagrad": ("sum",),
    "sgd": (),
}
"""What torch calls that which each optimizer keeps of past steps, beside their count."""

_torch: Any = torch
foreach_copy_: Final[Callable[[Sequence[Tensor], Sequence[Tensor]], None]] = _torch._foreach_copy_
"""Copy tensors into others, all in one call."""
foreach_sub_: Final[Callable[[Sequence[Tensor], Sequence[Tensor]], None]] = _torch._foreach_sub_
"""Take tensors off others, all in one call."""

split: Final[Callable[[Tensor, Sequence[int]], Sequence[Tensor]]] = partial(_torch.split, dim=1)
"""Cut `[K, P]` into the columns of each parameter."""

_Kept: TypeAlias = tuple[Tensor, ...]
_Rule: TypeAlias = Callable[[Tensor, _Kept, Tensor, Tensor], tuple[Tensor, _Kept]]
"""Of gradients `[K, P]`, what is kept, rates and counts of steps, with this one: what is taken off
the parameters, and what is kept from now on."""

_BETAS: Final = (0.9, 0.999)
_EPSILON: Final = 1e-8
_ADAGRAD_EPSILON: Final = 1e-10
_RMSPROP_SHARE: Final = 0.9
_NORM_EPSILON: Final = 1e-6


def _adam(gradient: Tensor, kept: _Kept, rates: Tensor, steps: Tensor) -> tuple[Tensor, _Kept]:
    first, second = _BETAS
    mean = torch.lerp(kept[0], gradient, 1 - first)
    square = (kept[1] * second).addcmul_(gradient, gradient, value=1 - second)
    by_mean = (1 - torch.pow(first, steps)).to(rates.dtype)
    by_square = (1 - torch.pow(second, steps)).sqrt_().to(rates.dtype)
    below = square.sqrt().div_(by_square).add_(_EPSILON)
    return (mean / below).mul_(rates / by_mean), (mean, square)


def _rmsprop(gradient: Tensor, kept: _Kept, rates: Tensor, _steps: Tensor) -> tuple[Tensor, _Kept]:
    share = _RMSPROP_SHARE
    square = (kept[0] * share).addcmul_(gradient, gradient, value=1 - share)
    return (gradient / square.sqrt().add_(_EPSILON)).mul_(rates), (square,)


def _adagrad(gradient: Tensor, kept: _Kept, rates: Tensor, _steps: Tensor) -> tuple[Tensor, _Kept]:
    total = torch.addcmul(kept[0], gradient, gradient)
    return (gradient / total.sqrt().add_(_ADAGRAD_EPSILON)).mul_(rates), (total,)


def _sgd(gradient: Tensor, kept: _Kept, rates: Tensor, _steps: Tensor) -> tuple[Tensor, _Kept]:
    return gradient * rates, kept


_RULES: Final[Mapping[OptimizerName, _Rule]] = {
    "adam": _adam,
    "rmsprop": _rmsprop,
    "adagrad": _adagrad,
    "sgd": _sgd,
}


class StackedOptimizer:
    """One optimizer, with each member's own rates, clipping, decay and recovery."""

    def __init__(
        self,
        trainings: Sequence[TrainingSpec],
        sizes: Sequence[int],
        *,
        kept: Sequence[Tensor],
        steps: Tensor,
    ) -> None:
        """Go on from earlier steps.

        Args:
            trainings: how each member is trained; all have one optimizer.
            sizes: numbers of each of the N parameters, in a member; P is their sum.
            kept: `[K, P]` for each of the optimizer's `QUANTITIES`.
            steps: how many each member made with each parameter, `[K, N]` float64.
        """
        self._trainings, self._sizes = [*trainings], [*sizes]
        self._rule = _RULES[trainings[0].optimizer]
        self.kept, self.steps = (*kept,), steps
        self._is_even = bool((steps == steps[:, :1]).all())
        self.set_rates(torch.zeros(len(trainings), 1, device=steps.device))

    def set_rates(self, rates: Tensor) -> None:
        """Step so far from now on: `[K, 1]`, or `[K, P]` where it differs between parameters."""
        trainings, self._rates = self._trainings, rates
        self._cut = _limits([one.clip_value for one in trainings], rates)
        self._longest = _limits([one.clip_norm for one in trainings], rates)
        decays = [one.weight_decay for one in trainings]
        self._decays = rates * _column(decays, rates) if any(decays) else None
        factors = [one.nan_recovery for one in trainings]
        self._recovery = None
        if any(factor is not None for factor in factors):
            self._recovery = _column([factor or torch.nan for factor in factors], rates)

    @torch.no_grad()
    def step(
        self, parameters: Sequence[Tensor], gradients: Sequence[Tensor | None], totals: Tensor
    ) -> Tensor:
        """Change the parameters `[K, ...]` in place; gives the gradients' norms `[K]`.

        A member's norm is that of all its gradients, behind the cut of single components. Where it
        or `totals` `[K]`, the loss, is no number, there is recovery in the gradient's place, or
        nothing of use. A parameter without a gradient stays as it is, as do its averages.
        """
        given = [one is not None for one in gradients]
        gradient = torch.cat(
            [
                (torch.zeros_like(own) if one is None else one).flatten(1)
                for own, one in zip(parameters, gradients, strict=True)
            ],
            1,
        )
        if self._cut is not None:
            gradient = torch.clamp(gradient, -self._cut, self._cut)
        norms: Tensor = _torch.linalg.vector_norm(gradient, dim=1)
        if self._longest is not None:
            shares = (self._longest / (norms.unsqueeze(-1) + _NORM_EPSILON)).clamp_(max=1)
            gradient = gradient * shares
        own, used = gradient, None
        if self._recovery is not None or self._decays is not None:
            own = torch.cat([one.flatten(1) for one in parameters], 1)
        if not all(given):
            used = torch.tensor([given], device=gradient.device).expand_as(self.steps)
        if self._recovery is not None:
            broken = ~(torch.isfinite(norms) & torch.isfinite(totals)).unsqueeze(-1)
            gradient = torch.where(broken, self._recovery * own, gradient)
            used = used if used is None else used | broken
        change = self._changed(gradient, used)
        if self._decays is not None:
            change = change + self._decays * own
        changes = split(change, self._sizes)
        taken_off = [one.view_as(own) for one, own in zip(changes, parameters, strict=True)]
        foreach_sub_([*parameters], taken_off)
        return norms

    def keep(self, places: Sequence[int]) -> None:
        """Go on with these members; rates are to be set anew."""
        rows = torch.tensor([*places], device=self.steps.device)
        self.kept, self.steps = tuple(one[rows] for one in self.kept), self.steps[rows]
        self._trainings = [self._trainings[place] for place in places]

    def _changed(self, gradient: Tensor, used: Tensor | None) -> Tensor:
        """What is taken off; `used` `[K, N]` says of which parameters, None: of all."""
        if used is None:
            self.steps = self.steps + 1
        else:
            self.steps, self._is_even = self.steps + used, False
        steps = self.steps[:, :1] if self._is_even else self._spread(self.steps)
        if used is None:
            change, self.kept = self._rule(gradient, self.kept, self._rates, steps)
            return change
        # What was never used has no count to correct by.
        change, kept = self._rule(gradient, self.kept, self._rates, steps.clamp(min=1))
        columns = self._spread(used)
        self.kept = tuple(
            torch.where(columns, one, before) for one, before in zip(kept, self.kept, strict=True)
        )
        return torch.where(columns, change, 0)

    def _spread(self, each: Tensor) -> Tensor:
        """One number per parameter `[K, N]` -> `[K, P]`."""
        sizes = torch.tensor(self._sizes, device=each.device)
        return each.repeat_interleave(sizes, 1)


def _limits(limits: Sequence[float | None], like: Tensor) -> Tensor | None:
    """`[K, 1]`, infinity where there is no limit; None where nobody has one."""
    if all(limit is None for limit in limits):
        return None
    return _column([torch.inf if limit is None else limit for limit in limits], like)


def _column(numbers: Sequence[float], like: Tensor) -> Tensor:
    return like.new_tensor([*numbers]).unsqueeze(-1)
