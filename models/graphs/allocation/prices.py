"""One choice for each layer by a price: what is lost against what it costs."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias, TypeVar

Option = TypeVar("Option")
"""A choice, or a choice with how it is rounded."""
Table: TypeAlias = Mapping[str, Mapping[Option, float]]
"""A number for each choice, by the layer's name."""
FIRST_PRICES = 12
"""That a search begins with."""


def by_price(
    losses: Table[Option], costs: Table[Option], prices: Sequence[float]
) -> list[dict[str, Option]]:
    """For each price the choices that minimise `sum loss + price * cost`, the cheaper of equals.

    `losses` are predicted ones, `s e` of each choice; both tables have the same choices.
    """
    return [
        {
            name: min(table, key=lambda choice: (table[choice] + price * own[choice], own[choice]))
            for name, table, own in ((name, losses[name], costs[name]) for name in losses)
        }
        for price in prices
    ]


def prices(losses: Table[Option], costs: Table[Option], count: int = FIRST_PRICES) -> list[float]:
    """At most `count` rising prices, of which each leads to other choices (see `by_price`).

    Their total costs are spread evenly, by their ratios, from the layers as they are best to the
    cheapest of all.
    """
    steps = sorted(step for name, table in losses.items() for step in _steps(table, costs[name]))
    if not steps:
        return []
    # At a price between two of these, all layers have taken the steps below it.
    bounds = [*(price for price, _ in steps), steps[-1][0] * 4]
    least = sum(min(costs[name].values()) for name in losses)
    remaining = sum(saved for _, saved in steps)
    totals: list[tuple[float, float]] = []
    for (low, high), (_, saved) in zip(pairwise(bounds), steps, strict=True):
        remaining -= saved
        # Layers that cost the same change at the same price.
        if high > low:
            totals.append((math.sqrt(low * high) if low > 0 else high / 2, least + remaining))
    return sorted({_nearest(totals, share / max(1, count - 1)) for share in range(count)})


def _nearest(totals: Sequence[tuple[float, float]], share: float) -> float:
    """The price of the total nearest to a share of the way, in logarithms, to the cheapest."""
    first, last = (math.log(max(total, 1.0)) for total in (totals[0][1], totals[-1][1]))
    wanted = first + share * (last - first)
    return min(totals, key=lambda entry: abs(math.log(max(entry[1], 1.0)) - wanted))[0]


def _steps(
    losses: Mapping[Option, float], costs: Mapping[Option, float]
) -> list[tuple[float, float]]:
    """At which prices a layer changes its choice, and what cost it saves by that.

    They are the slopes of the lower convex hull of losses over costs.
    """
    points = sorted((costs[choice], loss) for choice, loss in losses.items())
    # Whatever costs more than the best is never taken.
    best = min(range(len(points)), key=lambda place: (points[place][1], points[place][0]))
    hull: list[tuple[float, float]] = []
    for cost, loss in points[: best + 1]:
        if hull and hull[-1][0] == cost:
            continue
        while hull and _is_above(hull, (cost, loss)):
            hull.pop()
        hull.append((cost, loss))
    return [
        ((lost - less) / (more - cost), more - cost)
        for (cost, lost), (more, less) in pairwise(hull)
    ]


def _is_above(hull: Sequence[tuple[float, float]], point: tuple[float, float]) -> bool:
    """Whether the last point of a hull is above the line from the one before it to a new one."""
    cost, loss = hull[-1]
    if len(hull) == 1:
        return False
    before, lost = hull[-2]
    return (loss - lost) * (point[0] - before) >= (point[1] - lost) * (cost - before)
