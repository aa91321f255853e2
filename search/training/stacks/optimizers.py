"""The optimizers of `search.training.optimizers` over K members at once.

What is kept of past steps, and the gradients, stand in tensors `[K, P]`, a member's P numbers in
one row, so that a step is a few operations however many parameters and members there are. The
arithmetic is that of torch's own optimizers, in their order.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

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

_Kept: TypeAlias = tuple[Tensor, ...]
_Rule: TypeAlias = Callable[[Tensor, _Kept, Tensor, Sequence[int]], tuple[Tensor, _Kept]]
"""Of gradients `[K, P]`, what is kept, rates and how many steps each member made with this one: what
is taken off the parameters, and what is kept from now on."""

_BETAS: Final = (0.9, 0.999)
_EPSILON: Final = 1e-8
_ADAGRAD_EPSILON: Final = 1e-10
_RMSPROP_SHARE: Final = 0.9
_NORM_EPSILON: Final = 1e-6


def _adam(
    gradient: Tensor, kept: _Kept, rates: Tensor, steps: Sequence[int]
) -> tuple[Tensor, _Kept]:
    first, second = _BETAS
    mean = torch.lerp(kept[0], gradient, 1 - first)
    square = (kept[1] * second).addcmul_(gradient, gradient, value=1 - second)
    corrections = [[1 - first**count, (1 - second**count) ** 0.5] for count in steps]
    by_mean, by_square = rates.new_tensor(corrections).unsqueeze(-1).unbind(1)
    below = square.sqrt().div_(by_square).add_(_EPSILON)
    return (mean / below).mul_(rates / by_mean), (mean, square)


def _rmsprop(
    gradient: Tensor, kept: _Kept, rates: Tensor, _steps: Sequence[int]
) -> tuple[Tensor, _Kept]:
    share = _RMSPROP_SHARE
    square = (kept[0] * share).addcmul_(gradient, gradient, value=1 - share)
    return (gradient / square.sqrt().add_(_EPSILON)).mul_(rates), (square,)


def _adagrad(
    gradient: Tensor, kept: _Kept, rates: Tensor, _steps: Sequence[int]
) -> tuple[Tensor, _Kept]:
    total = torch.addcmul(kept[0], gradient, gradient)
    return (gradient / total.sqrt().add_(_ADAGRAD_EPSILON)).mul_(rates), (total,)


def _sgd(
    gradient: Tensor, kept: _Kept, rates: Tensor, _steps: Sequence[int]
) -> tuple[Tensor, _Kept]:
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
        name: OptimizerName,
        trainings: Sequence[TrainingSpec],
        *,
        kept: Sequence[Tensor],
        steps: Sequence[int],
    ) -> None:
        """Go on from earlier steps.

        Args:
            name: whose arithmetic it is.
            trainings: how each member is trained.
            kept: `[K, P]` for each of the optimizer's `QUANTITIES`.
            steps: how many each member made.
        """
        self._name, self._rule = name, _RULES[name]
        self.kept, self.steps = (*kept,), [*steps]
        self._rates = torch.zeros(())
        self._use(trainings)

    def set_rates(self, rates: Tensor) -> None:
        """Step so far from now on: `[K, 1]`, or `[K, P]` where parameters have rates of their own."""
        self._rates = rates
        self._shrink = None
        if any(one.weight_decay for one in self._trainings):
            decays = [one.weight_decay for one in self._trainings]
            self._shrink = rates * rates.new_tensor(decays).unsqueeze(-1)
        self._limits = _limits([one.clip_value for one in self._trainings], rates)
        self._norms = _limits([one.clip_norm for one in self._trainings], rates)
        self._recovery = None
        if any(one.nan_recovery is not None for one in self._trainings):
            factors = [one.nan_recovery or torch.nan for one in self._trainings]
            self._recovery = rates.new_tensor(factors).unsqueeze(-1)

    @torch.no_grad()
    def step(
        self, parameters: Sequence[Tensor], gradients: Sequence[Tensor | None], totals: Tensor
    ) -> Tensor:
        """Change the parameters `[K, ...]` in place; gives the gradients' norms `[K]`.

        A member's norm is that of all its gradients, behind the cut of single components. Where it
        or `totals` `[K]`, the loss, is no number, there is recovery in the gradient's place, or
        nothing of use.
        """
        # A parameter that nothing depends on has no gradient.
        given = [
            torch.zeros_like(parameter) if gradient is None else gradient
            for parameter, gradient in zip(parameters, gradients, strict=True)
        ]
        gradient = torch.cat([one.flatten(1) for one in given], 1)
        if self._limits is not None:
            gradient = torch.clamp(gradient, -self._limits, self._limits)
        norms = torch.linalg.vector_norm(gradient, dim=1)
        if self._norms is not None:
            shares = (self._norms / (norms.unsqueeze(-1) + _NORM_EPSILON)).clamp_(max=1)
            gradient = gradient * shares
        own = None
        if self._recovery is not None or self._shrink is not None:
            own = torch.cat([one.flatten(1) for one in parameters], 1)
        if self._recovery is not None and own is not None:
            finite = (torch.isfinite(norms) & torch.isfinite(totals)).unsqueeze(-1)
            gradient = torch.where(finite, gradient, self._recovery * own)
        steps = [count + 1 for count in self.steps]
        change, kept = self._rule(gradient, self.kept, self._rates, steps)
        if self._shrink is not None and own is not None:
            change = change + self._shrink * own
        changes = change.split([one[0].numel() for one in parameters], 1)
        torch._foreach_sub_(
            [*parameters],
            [one.view_as(own) for one, own in zip(changes, parameters, strict=True)],
        )
        self.kept, self.steps = kept, steps
        return norms

    def keep(self, places: Sequence[int]) -> None:
        """Go on with these members; rates are to be set anew."""
        self.kept = tuple(one[torch.tensor([*places]).to(one.device)] for one in self.kept)
        self.steps = [self.steps[place] for place in places]
        self._use([self._trainings[place] for place in places])

    def _use(self, trainings: Sequence[TrainingSpec]) -> None:
        self._trainings = [*trainings]


def _limits(limits: Sequence[float | None], like: Tensor) -> Tensor | None:
    """`[K, 1]`, infinity where there is no limit; None where nobody has one."""
    if all(limit is None for limit in limits):
        return None
    numbers = [torch.inf if limit is None else limit for limit in limits]
    return like.new_tensor(numbers).unsqueeze(-1)
