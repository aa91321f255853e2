"""The trials of a search over layers, asked and told by number."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

import numpy as np

from models.graphs.allocation import FIRST_PRICES, refitted
from search.graphs.front.mutations import Mutations, with_sensitivities
from search.graphs.front.priced_picks import least_picks, priced_picks, rounded_picks
from search.graphs.picks import (
    LayerOffers,
    Measured,
    Objective,
    Pick,
    Picks,
    changed,
    front_of,
)

REFIT_EVERY = 25
"""Complete results."""
_ATTEMPTS = 50
"""Draws before all neighbours are looked at one by one."""

_MOST_PRICES = 96
"""Of those that are looked at where a limit leaves few of the first ones."""

_MOSTLY = 0.9
"""Of the bytes of all layers, those that are not as they were, in what is mutated."""

_Key = frozenset[tuple[str, Pick]]


class Proposals:
    """Trial 0 is the network as it is; then come 8 bits, prices, and mutations of the front.

    What a number gets follows from the offers, the seed, what was told, and the trials that are
    under way. Nothing is proposed twice. What is beyond a limit by what is known of it before it is
    built is left out, but for trial 0.
    """

    def __init__(
        self,
        layers: Sequence[LayerOffers],
        *,
        objectives: Sequence[Objective] = ("bytes",),
        seed: int = 0,
        within: Callable[[Picks], bool] | None = None,
    ) -> None:
        """For each objective 12 prices; bits alone have 12 prices of bytes of their own.

        `within` says of picks whether they keep the limits; None: there are no limits. Where no
        picks do, the first trials are those of the fewest bytes and of the fewest numbers.
        """
        self._layers, self._objectives, self._seed = tuple(layers), tuple(objectives), seed
        self._within = within
        self._under_way: dict[int, Picks] = {}
        self._told: dict[int, Measured] = {}
        self._mutations = Mutations(self._layers, self._objectives)
        self._refits = 0
        self.offers = self._layers
        """With the sensitivities that are predicted by now."""
        self.first: tuple[Picks, ...] = tuple(self._first())
        """What the first numbers get."""

    @property
    def front(self) -> list[Measured]:
        """What was told, without all that others are better than; by rising costs."""
        told = [self._told[number] for number in sorted(self._told)]
        return front_of(told, self._objectives)

    def ask(self, number: int) -> Picks | None:
        """The trial of this number; None: every neighbour of the front was proposed already.

        The same number gets the same trial until it is told. Later numbers than those of `first`
        need one complete result.

        Raises:
            ValueError: nothing complete was told that could be mutated.
        """
        if number in self._told:
            return self._told[number].picks
        if number not in self._under_way:
            picks = self.first[number] if number < len(self.first) else self._mutated(number)
            if picks is None:
                return None
            self.begin(number, picks)
        return self._under_way[number]

    def begin(self, number: int, picks: Picks) -> None:
        """A trial is under way: asked here, or by a process before this one."""
        self._under_way[number] = picks

    def tell(self, number: int, found: Measured) -> None:
        """What was measured of a trial, complete or not."""
        self._under_way.pop(number, None)
        self._told[number] = found

    def _first(self) -> list[Picks]:
        found: dict[_Key, Picks] = {frozenset(): {}}
        rounded = rounded_picks(self._layers) if "bytes" in self._objectives else {}
        if self._within is None or self._within(rounded):
            found.setdefault(changed(rounded), rounded)
        for objective in self._objectives:
            also = "bytes" in self._objectives
            trials = self._priced(objective, also_bytes=also)
            if objective == "bytes":
                # Predictions of unlike kinds err unlike: bits alone are always among what is
                # measured, so that nothing is lost by offering more.
                trials += self._priced(objective, only=lambda pick: not pick.choice.has_structure)
            for picks in trials:
                found.setdefault(changed(picks), picks)
        if len(found) == 1 and self._within is not None:
            least = least_picks(self._layers)
            # Where nothing keeps the limits, what comes nearest shows by how much.
            for picks in [*filter(self._within, least)] or least:
                found.setdefault(changed(picks), picks)
        return list(found.values())

    def _priced(
        self,
        objective: Objective,
        *,
        also_bytes: bool = False,
        only: Callable[[Pick], bool] = lambda _: True,
    ) -> list[dict[str, Pick]]:
        """Rising prices; of those within a limit as many as there would be without one."""
        priced = partial(priced_picks, self._layers, objective, also_bytes=also_bytes, only=only)
        trials = priced()
        if self._within is None or all(map(self._within, trials)):
            return trials
        kept = [*filter(self._within, priced(count=_MOST_PRICES))]
        # The first one, nearest to the limit, is mostly what was asked for.
        places = np.linspace(0, len(kept) - 1, min(len(kept), FIRST_PRICES))
        return [kept[round(place)] for place in places]

    def _mutated(self, number: int) -> Picks | None:
        front = self.front
        if not front:
            raise ValueError(
                f"trial {number} mutates the front, which is empty; tell a complete result first"
            )
        self._refit()
        known = {changed(picks) for picks in self._under_way.values()}
        known |= {changed(one.picks) for one in self._told.values()} | {*map(changed, self.first)}
        generator = np.random.default_rng([self._seed, number])
        bases = [one for one in front if self._is_rounded(one)] or front
        for _ in range(_ATTEMPTS):
            base = self._mutations.base(bases, generator)
            picks = self._mutations.draw(base, front, generator)
            if self._is_new(picks, known):
                return picks
        for base in front:
            for picks in self._mutations.neighbours(base):
                if self._is_new(picks, known):
                    return picks
        return None

    def _is_new(self, picks: Picks, known: Collection[_Key]) -> bool:
        if changed(picks) in known:
            return False
        return self._within is None or self._within(picks)

    def _is_rounded(self, one: Measured) -> bool:
        """Whether most of it is smaller: what is left as it is has next to nothing to be found."""
        before = {layer.name: layer.offers[0].costs.bytes for layer in self._layers}
        smaller = {name for name, _ in changed(one.picks)}
        whole = sum(before.values())
        return sum(before[name] for name in smaller) >= _MOSTLY * whole

    def _refit(self) -> None:
        """Sensitivities by the first results, as many as 25 goes into."""
        complete = [self._told[number] for number in sorted(self._told)]
        complete = [one for one in complete if one.loss is not None and changed(one.picks)]
        refits = len(complete) // REFIT_EVERY
        used = complete[: refits * REFIT_EVERY]
        if not used or refits == self._refits:
            return
        self._refits = refits
        errors = {
            (one.name, offer.pick): offer.error for one in self._layers for offer in one.offers
        }
        before = {
            (one.name, compensated): value
            for one in self._layers
            for compensated, value in (
                (True, one.compensated_sensitivity),
                (False, one.plain_sensitivity),
            )
        }
        rows: list[Mapping[tuple[str, bool], float]] = [
            {(name, pick.compensated): errors[name, pick] for name, pick in one.picks.items()}
            for one in used
        ]
        after = refitted(before, rows, [one.loss or 0.0 for one in used])
        self.offers = with_sensitivities(self._layers, after)
        self._mutations = Mutations(self.offers, self._objectives)
