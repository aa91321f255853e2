"""Other picks for one to three layers of a trial on the front."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from search.graphs.picks import UNCHANGED, LayerOffers, Measured, Objective, Pick, Picks

MOST_LAYERS = 3
"""That one mutation changes."""
_LOG_HEAT = (math.log(0.05), math.log(1.0))
"""How much chance weighs beside predicted gains, in mean losses of a layer; drawn between both,
in logarithms."""

_AMONG_BITS = 0.5
"""Share of the draws that look at bits alone: choices of low rank are ten times as many."""

_Values = NDArray[np.float64]


@dataclass(frozen=True)
class _Move:
    layer: str
    pick: Pick


class Mutations:
    """Draws by what the layers' offers predict."""

    def __init__(self, layers: Sequence[LayerOffers], objectives: Sequence[Objective]) -> None:
        self._objectives = tuple(objectives)
        self._layers = tuple(layers)
        self._moves = [_Move(one.name, offer.pick) for one in layers for offer in one.offers]
        self._losses = np.array(
            [one.sensitivity(offer.pick) * offer.error for one in layers for offer in one.offers]
        )
        self._costs = np.array(
            [offer.costs.values(objectives) for one in layers for offer in one.offers]
        ).reshape(len(self._moves), len(self._objectives))
        self._places = {(move.layer, move.pick): at for at, move in enumerate(self._moves)}
        self._has_structure = np.array([move.pick.choice.has_structure for move in self._moves])
        counts = [len(one.offers) for one in layers]
        self._layer_of = np.repeat(np.arange(len(layers)), counts)

    def base(self, front: Sequence[Measured], generator: np.random.Generator) -> Measured:
        """One of the front: as likely as its share of the way in costs, times exp(-loss).

        Points stand close together where little is lost, so each counts for the logarithm of costs
        up to halfway to its neighbours. A divergence of several nats is an answer that nobody can
        use, and half of the way may be of such.
        """
        at = int(generator.integers(len(self._objectives)))
        costs = np.log([max(1.0, one.costs.of(self._objectives[at])) for one in front])
        order = np.argsort(costs, kind="stable")
        ordered = costs[order]
        bounds = np.concatenate([ordered[:1], (ordered[1:] + ordered[:-1]) / 2, ordered[-1:]])
        shares = np.empty(len(front))
        shares[order] = np.diff(bounds)
        shares *= np.exp(-np.array([one.loss or 0.0 for one in front]))
        if not shares.sum():
            return front[int(generator.integers(len(front)))]
        return front[int(generator.choice(len(front), p=shares / shares.sum()))]

    def draw(
        self, base: Measured, front: Sequence[Measured], generator: np.random.Generator
    ) -> dict[str, Pick]:
        """A trial that differs from `base` in one to three layers, drawn by predicted gain.

        A gain is what a layer loses less and costs less at the price that the front has there,
        times a factor between about a third and 3.
        """
        count = int(generator.integers(1, min(MOST_LAYERS, len(self._layers)) + 1))
        gains = self._gains(base.picks, self._prices(base, front, generator))
        heat = float(np.exp(generator.uniform(*_LOG_HEAT)))
        scale = heat * self._predicted(base.picks) / len(self._layers)
        noisy = gains + scale * generator.gumbel(size=len(gains))
        current = self._current(base.picks)
        noisy[current] = -np.inf
        if generator.random() < _AMONG_BITS and not self._has_structure.all():
            noisy[self._has_structure] = -np.inf
        picks = dict(base.picks)
        for _ in range(count):
            best = int(noisy.argmax())
            if noisy[best] == -np.inf:
                break
            move = self._moves[best]
            picks[move.layer] = move.pick
            noisy[self._layer_of == self._layer_of[best]] = -np.inf
        return picks

    def neighbours(self, base: Measured) -> Iterator[dict[str, Pick]]:
        """All trials that differ from `base` in one layer."""
        for move in self._moves:
            if base.picks.get(move.layer, UNCHANGED) != move.pick:
                yield {**base.picks, move.layer: move.pick}

    def _current(self, picks: Picks) -> NDArray[np.int64]:
        return np.array(
            [self._places[one.name, picks.get(one.name, UNCHANGED)] for one in self._layers]
        )

    def _predicted(self, picks: Picks) -> float:
        return max(float(self._losses[self._current(picks)].sum()), 1e-12)

    def _gains(self, picks: Picks, prices: _Values) -> _Values:
        scores = self._losses + self._costs @ prices
        return scores[self._current(picks)][self._layer_of] - scores

    def _prices(
        self, base: Measured, front: Sequence[Measured], generator: np.random.Generator
    ) -> _Values:
        """For each objective, loss per cost on the way to the neighbours on the front."""
        slopes = np.array([_slope(base, front, one) for one in self._objectives])
        return slopes * np.exp(generator.standard_normal(len(slopes)))


def with_sensitivities(
    layers: Sequence[LayerOffers], found: dict[tuple[str, bool], float]
) -> tuple[LayerOffers, ...]:
    """The same offers with other sensitivities, by names and whether rounding is compensated."""
    return tuple(
        replace(
            one,
            compensated_sensitivity=found[one.name, True],
            plain_sensitivity=found[one.name, False],
        )
        for one in layers
    )


def _slope(base: Measured, front: Sequence[Measured], objective: Objective) -> float:
    own_loss, own_cost = base.loss or 0.0, base.costs.of(objective)
    slopes: list[float] = []
    for cheaper in (True, False):
        others = [
            (abs(one.costs.of(objective) - own_cost), one.loss or 0.0)
            for one in front
            if (one.costs.of(objective) < own_cost) == cheaper
            and one.costs.of(objective) != own_cost
        ]
        if others:
            distance, loss = min(others)
            slopes.append(abs(loss - own_loss) / distance)
    found = [slope for slope in slopes if slope > 0]
    if not found:
        return max(own_loss, 1e-12) / max(own_cost, 1.0)
    return float(np.exp(np.mean(np.log(found))))
