"""The first trials: one pick for each layer by a price of bytes or of multiply-adds."""

from collections.abc import Callable, Sequence

from models.graphs.allocation import FIRST_PRICES, by_price, prices
from models.graphs.fits import Dense
from search.graphs.picks import LayerOffers, Objective, Offer, Pick

_ROUNDED = Dense(bits=8)
_WORTH_ROUNDING = 0.3
"""The share of bytes at which layers are at 8 bits or a little below."""


def priced_picks(
    layers: Sequence[LayerOffers],
    objective: Objective,
    *,
    also_bytes: bool = False,
    only: Callable[[Pick], bool] = lambda _: True,
    count: int = FIRST_PRICES,
) -> list[dict[str, Pick]]:
    """At most `count` trials of rising price, by the losses that sensitivities and errors predict.

    Where multiply-adds have the price, `also_bytes` says that bytes count a little too: 8 bits are
    as fast as 32, and lose next to nothing.
    """
    allowed = {one.name: [offer for offer in one.offers if only(offer.pick)] for one in layers}
    losses = {
        one.name: {
            offer.pick: one.sensitivity(offer.pick) * offer.error for offer in allowed[one.name]
        }
        for one in layers
    }
    if objective == "multiply_adds" and also_bytes:
        price = _price_of_rounding(losses, _costs(allowed, "bytes"))
        losses = {
            name: {
                offer.pick: losses[name][offer.pick] + price * offer.costs.bytes for offer in offers
            }
            for name, offers in allowed.items()
        }
    costs = _costs(allowed, objective)
    return by_price(losses, costs, prices(losses, costs, count))


def rounded_picks(layers: Sequence[LayerOffers]) -> dict[str, Pick]:
    """Every layer at 8 bits by rows, as other tools do it; without such an offer it stays whole."""
    picks: dict[str, Pick] = {}
    for one in layers:
        own = [offer for offer in one.offers if offer.pick.choice == _ROUNDED]
        if own:
            picks[one.name] = min(own, key=lambda offer: offer.error).pick
    return picks


def least_picks(layers: Sequence[LayerOffers]) -> list[dict[str, Pick]]:
    """The trial of the fewest bytes, and that of the fewest stored numbers."""
    return [
        {one.name: min(one.offers, key=cost).pick for one in layers}
        for cost in (_bytes_first, _numbers_first)
    ]


def _bytes_first(offer: Offer) -> tuple[float, float]:
    return offer.costs.bytes, offer.error


def _numbers_first(offer: Offer) -> tuple[float, float]:
    return offer.numbers, offer.costs.bytes


def _costs(offers: dict[str, list[Offer]], objective: Objective) -> dict[str, dict[Pick, float]]:
    return {
        name: {offer.pick: offer.costs.of(objective) for offer in own}
        for name, own in offers.items()
    }


def _price_of_rounding(
    losses: dict[str, dict[Pick, float]], costs: dict[str, dict[Pick, float]]
) -> float:
    """The lowest of the prices at which most bytes are saved."""
    found = prices(losses, costs)
    whole = sum(max(own.values()) for own in costs.values())
    for price, picks in zip(found, by_price(losses, costs, found), strict=True):
        if sum(costs[name][pick] for name, pick in picks.items()) <= _WORTH_ROUNDING * whole:
            return price
    return found[-1] if found else 0.0
