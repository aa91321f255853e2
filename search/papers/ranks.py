"""Systems compared over several data sets by their ranks, after Demsar (JMLR 7, 2006).

What a comparison needs of statistics is short for a handful of systems, so that a terminal does not
load a library of them.
"""

import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal

PairTest = Literal["wilcoxon", "signs"]

FEWEST_SETS = 2
"""With one data set there is nothing to rank over."""

_NEMENYI: Mapping[int, float] = {
    2: 1.960,
    3: 2.343,
    4: 2.569,
    5: 2.728,
    6: 2.850,
    7: 2.949,
    8: 3.031,
    9: 3.102,
    10: 3.164,
}
"""Quantiles of the studentized range at 5 %, over the root of 2, by the number of systems."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two systems on the same data sets."""

    first: str
    second: str
    wins: int
    """Of the first."""
    ties: int
    losses: int
    p: float
    """Two-sided and exact, adjusted by Holm for all pairs."""


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """Systems over data sets."""

    sets: Sequence[str]
    mean_ranks: Mapping[str, float]
    """Of each system, 1 the best; ties share."""
    friedman_p: float
    """How often ranks differ as much where no system is better."""
    critical_difference: float | None
    """Of mean ranks at 5 % by Nemenyi; null for more than ten systems."""
    pairs: Sequence[Pair]
    pair_test: PairTest
    """Wilcoxon's signed ranks, or signs alone where differences do not compare."""


def ranks_of(values: Mapping[str, Mapping[str, float]], *, one_metric: bool = True) -> Ranks | None:
    """Compare systems.

    Args:
        values: of each data set, what each system came to: higher is better, and minus infinity
            what failed. A data set that lacks a system is to be left out by who calls.
        one_metric: whether a difference on one data set compares with that on another.

    Returns:
        None below two data sets or two systems.
    """
    systems = [*next(iter(values.values()), dict[str, float]())]
    if len(values) < FEWEST_SETS or len(systems) < FEWEST_SETS:
        return None
    ranked = [_ranks([-found[system] for system in systems]) for found in values.values()]
    means = [statistics.fmean(column) for column in zip(*ranked, strict=True)]
    count, sets = len(systems), len(values)
    quantile = _NEMENYI.get(count)
    return Ranks(
        sets=[*values],
        mean_ranks=dict(zip(systems, means, strict=True)),
        friedman_p=_friedman(ranked),
        critical_difference=(
            None if quantile is None else quantile * math.sqrt(count * (count + 1) / (6 * sets))
        ),
        pairs=_holm(
            [
                _pair(values, *two, test=_wilcoxon if one_metric else _signs)
                for two in itertools.combinations(systems, 2)
            ]
        ),
        pair_test="wilcoxon" if one_metric else "signs",
    )


def _ranks(numbers: Sequence[float]) -> list[float]:
    """The least has 1; equal ones share the mean of their ranks."""
    return [
        sum(other < one for other in numbers) + (1 + sum(other == one for other in numbers)) / 2
        for one in numbers
    ]


def _friedman(ranked: Sequence[Sequence[float]]) -> float:
    """The p value of Friedman's statistic with its correction for ties."""
    sets, count = len(ranked), len(ranked[0])
    sums = [sum(column) for column in zip(*ranked, strict=True)]
    spread = sum(one * one for one in sums) - sets**2 * count * (count + 1) ** 2 / 4
    within = sum(one * one for row in ranked for one in row) - sets * count * (count + 1) ** 2 / 4
    if within == 0:
        return 1.0
    return _chi_square_above((count - 1) * spread / within, count - 1)


def _chi_square_above(value: float, freedom: int) -> float:
    """`P(X > value)`: finite sums (Abramowitz and Stegun 26.4.4, 26.4.5)."""
    half = value / 2
    if freedom % 2 == 0:
        return math.exp(-half) * sum(half**i / math.factorial(i) for i in range(freedom // 2))
    total = math.erfc(math.sqrt(half))
    term = math.sqrt(half) * math.exp(-half) / math.gamma(1.5)
    for power in range(1, (freedom + 1) // 2):
        total += term
        term *= half / (power + 0.5)
    return total


def _pair(
    values: Mapping[str, Mapping[str, float]],
    first: str,
    second: str,
    *,
    test: Callable[[Sequence[float]], float],
) -> Pair:
    both = [(found[first], found[second]) for found in values.values()]
    gaps = _gaps(both)
    return Pair(
        first=first,
        second=second,
        wins=sum(gap > 0 for gap in gaps),
        ties=len(both) - len(gaps),
        losses=sum(gap < 0 for gap in gaps),
        p=test(gaps),
    )


def _gaps(both: Sequence[tuple[float, float]]) -> list[float]:
    """Differences, without those of 0, in units of 1e-12 of the largest value.

    They are whole, so that equal ones share a rank: 0.9 - 0.8 is not 0.3 - 0.2 in binary.
    """
    finite = [abs(one) for pair in both for one in pair if math.isfinite(one)]
    unit = 1e-12 * (max(finite, default=0.0) or 1.0)
    # Two that failed are equal, and have no difference.
    apart = [one - other for one, other in both if one != other]
    gaps = [gap if math.isinf(gap) else float(round(gap / unit)) for gap in apart]
    return [gap for gap in gaps if gap]


def _signs(gaps: Sequence[float]) -> float:
    """Two-sided: how often as few or fewer would be of the rarer sign, if each were chance."""
    rarer = min(sum(gap > 0 for gap in gaps), sum(gap < 0 for gap in gaps))
    ways = sum(math.comb(len(gaps), count) for count in range(rarer + 1))
    return float(min(Fraction(2 * ways, 2 ** len(gaps)), Fraction(1)))


def _wilcoxon(gaps: Sequence[float]) -> float:
    """Two-sided, over all signs that the gaps might have."""
    # Doubled, ranks that are shared are whole numbers.
    ranks = [round(2 * rank) for rank in _ranks([abs(gap) for gap in gaps])]
    width, ways = len(gaps) + 2, _ways(tuple(sorted(ranks)))
    found = sum(rank for rank, gap in zip(ranks, gaps, strict=True) if gap > 0)
    least = min(found, sum(ranks) - found)
    # The digits up to the least total; their sum is what is left by one less than the base.
    below = (ways & (1 << (least + 1) * width) - 1) % ((1 << width) - 1)
    return float(min(Fraction(2 * below, 2 ** len(gaps)), Fraction(1)))


@lru_cache(maxsize=8)
def _ways(ranks: tuple[int, ...]) -> int:
    """How many subsets of the ranks have each total, each a digit of `len(ranks) + 2` bits.

    Pairs without ties have the same ranks, whatever their gaps are.
    """
    ways = 1
    for rank in ranks:
        ways += ways << rank * (len(ranks) + 2)
    return ways


def _holm(pairs: Sequence[Pair]) -> list[Pair]:
    """With p values adjusted, in the order given."""
    adjusted, worst = dict[int, float](), 0.0
    for place, number in enumerate(sorted(range(len(pairs)), key=lambda one: pairs[one].p)):
        worst = max(worst, min(1.0, (len(pairs) - place) * pairs[number].p))
        adjusted[number] = worst
    return [
        Pair(
            first=pair.first,
            second=pair.second,
            wins=pair.wins,
            ties=pair.ties,
            losses=pair.losses,
            p=adjusted[number],
        )
        for number, pair in enumerate(pairs)
    ]
