"""The optimizers of `search.training.optimizers` over K members at once.

`models.kernels.optimizer` takes the steps, all members' in two calls; here is what members bring to
them, and what becomes of parameters without a gradient.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import torch
from torch import Tensor

from models.kernels.optimizer import MemberRates, gradient_norms, update_
from search.training.trial_spec import OptimizerName, TrainingSpec

QUANTITIES: Final[Mapping[OptimizerName, tuple[str, ...]]] = {
    "adam": ("exp_avg", "exp_avg_sq"),
    "rmsprop": ("square_avg",),
    "adagrad": ("sum",),
    "sgd": (),
}
"""What torch calls that which each optimizer keeps of past steps, beside their count."""


class StackedOptimizer:
    """One optimizer, with each member's own rates, clipping, decay and recovery."""

    def __init__(
        self,
        trainings: Sequence[TrainingSpec],
        *,
        moments: Sequence[Sequence[Tensor]],
        steps: Tensor,
    ) -> None:
        """Go on from earlier steps; rates are to be set.

        Args:
            trainings: how each member is trained; all have one optimizer.
            moments: for each of the optimizer's `QUANTITIES`, `[K, ...]` of each parameter,
                contiguous.
            steps: how many each member made with each of the N parameters, `[N, K]` int64 on the
                CPU.
        """
        self._trainings, self.moments, self.steps = [*trainings], moments, steps

    def set_rates(self, rates: Sequence[float], scales: Sequence[Sequence[float]]) -> None:
        """Take learning rates of the K members, times the N parameters' scales for each of them."""
        trainings = self._trainings
        self._scales = torch.tensor(scales, dtype=torch.float64)
        self._rates = MemberRates(
            learning_rate=torch.tensor(rates, dtype=torch.float64),
            weight_decay=_given([one.weight_decay for one in trainings], 0),
            clip_value=_given([one.clip_value for one in trainings], torch.inf),
            clip_norm=_given([one.clip_norm for one in trainings], torch.inf),
            recovery=_given([one.nan_recovery for one in trainings], torch.nan),
        )

    @torch.no_grad()
    def step(
        self, parameters: Sequence[Tensor], gradients: Sequence[Tensor | None], totals: Tensor
    ) -> Tensor:
        """Change the parameters `[K, ...]` in place; gives the gradients' norms, `[K]` on the CPU.

        A member's norm is that of all its gradients, behind the cut of single components. Where it
        or `totals` `[K]`, the loss, is no number, there is recovery in the gradient's place, or the
        member stays as it is. What is kept of past steps with a parameter stays where it has no
        gradient; only its weights decay.
        """
        rates = self._rates
        given = {n: one for n, one in enumerate(gradients) if one is not None}
        found = gradient_norms([*given.values()], rates.clip_value)
        norms = torch.where(totals.detach().cpu().isfinite(), found, torch.nan)
        self._update(parameters, given, norms, rates)
        if len(given) < len(parameters):
            rest = {n: torch.zeros_like(one) for n, one in enumerate(parameters) if n not in given}
            self._update_without(parameters, rest, norms)
        return found

    def keep(self, places: Sequence[int]) -> None:
        """Go on with these members; rates are to be set anew."""
        rows = torch.tensor([*places])
        self.moments = [[one[rows.to(one.device)] for one in kept] for kept in self.moments]
        self.steps = self.steps.index_select(1, rows)
        self._trainings = [self._trainings[place] for place in places]

    def _update(
        self,
        parameters: Sequence[Tensor],
        gradients: Mapping[int, Tensor],
        norms: Tensor,
        rates: MemberRates,
    ) -> None:
        """A step with some of the parameters, by their places."""
        places = [*gradients]
        are_all = len(places) == len(parameters)
        steps = self.steps if are_all else self.steps[places]
        update_(
            self._trainings[0].optimizer,
            [parameters[n] for n in places],
            [*gradients.values()],
            [[kept[n] for n in places] for kept in self.moments],
            steps=steps,
            norms=norms,
            rates=rates,
            scales=self._scales if are_all else self._scales[places],
        )
        if not are_all:
            self.steps[places] = steps

    def _update_without(
        self, parameters: Sequence[Tensor], zeros: Mapping[int, Tensor], norms: Tensor
    ) -> None:
        """Have parameters without gradients decay, and shrink where a member recovers."""
        rates, places, finite = self._rates, [*zeros], norms.isfinite()
        if rates.weight_decay.any():
            # A step of gradients of 0 that keeps nothing is the decay alone.
            update_(
                "sgd",
                [parameters[n] for n in places],
                [*zeros.values()],
                [],
                steps=torch.zeros_like(self.steps[places]),
                norms=norms,
                rates=replace(rates, recovery=torch.full_like(norms, torch.nan)),
                scales=self._scales[places],
            )
        recovery = rates.recovery.masked_fill(finite, torch.nan)
        if not recovery.isnan().all():
            nobodys = torch.full_like(norms, torch.nan)
            self._update(parameters, zeros, nobodys, replace(rates, recovery=recovery))


def _given(numbers: Sequence[float | None], otherwise: float) -> Tensor:
    """Float64 `[K]`, with a number in the place of None."""
    return torch.tensor([otherwise if one is None else one for one in numbers], dtype=torch.float64)
