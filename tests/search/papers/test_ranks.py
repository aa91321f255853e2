"""Ranks over data sets are what scipy, a count of all signs, and Demsar's example say."""

import itertools
import math
import statistics
from typing import Any

import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from search.papers.ranks import ranks_of

VALUES = st.integers(0, 4).map(lambda one: one / 4)
TABLES = st.integers(3, 5).flatmap(
    lambda systems: st.lists(
        st.lists(VALUES, min_size=systems, max_size=systems), min_size=3, max_size=8
    )
)


def as_values(table: list[list[float]]) -> dict[str, dict[str, float]]:
    return {
        f"set {number}": {f"system {place}": value for place, value in enumerate(row)}
        for number, row in enumerate(table)
    }


@given(table=TABLES)
def test_ranks_and_friedmans_test_are_scipys(table: list[list[float]]) -> None:
    found = ranks_of(as_values(table))
    assert found is not None
    ranked = [scipy.stats.rankdata([-one for one in row]) for row in table]
    expected = [statistics.fmean(column) for column in zip(*ranked, strict=True)]
    assert [*found.mean_ranks.values()] == pytest.approx(expected)
    if any(len(set(row)) > 1 for row in table):
        p = scipy.stats.friedmanchisquare(*zip(*table, strict=True)).pvalue
        assert found.friedman_p == pytest.approx(p, rel=1e-9)
    else:
        assert found.friedman_p == 1.0


TENTHS = st.integers(0, 10).map(lambda one: one / 10)


@given(pairs=st.lists(st.tuples(TENTHS, TENTHS), min_size=2, max_size=9))
def test_equal_differences_of_shares_share_a_rank(pairs: list[tuple[float, float]]) -> None:
    """In binary 0.9 - 0.8 is not 0.3 - 0.2."""
    tenths = [(round(10 * one), round(10 * other)) for one, other in pairs]
    found, exact = (
        ranks_of({str(n): {"a": one, "b": other} for n, (one, other) in enumerate(table)})
        for table in (pairs, tenths)
    )
    assert found is not None
    assert exact is not None
    assert found.pairs == exact.pairs


@given(gaps=st.lists(st.integers(-4, 4), min_size=2, max_size=9))
def test_where_metrics_differ_signs_alone_are_tested(gaps: list[int]) -> None:
    values = {str(n): {"a": float(gap), "b": 0.0} for n, gap in enumerate(gaps)}
    found = ranks_of(values, one_metric=False)
    # Whatever the unit of one of the sets.
    other = ranks_of({**values, "0": {"a": gaps[0] / 100, "b": 0.0}}, one_metric=False)
    assert found is not None
    assert other is not None
    assert found.pair_test == "signs"
    there = [gap for gap in gaps if gap]
    expected = 1.0
    if there:
        expected = scipy.stats.binomtest(sum(gap > 0 for gap in there), len(there)).pvalue
    assert found.pairs[0].p == pytest.approx(expected)
    assert other.pairs == found.pairs


@given(gaps=st.lists(st.integers(-4, 4), min_size=2, max_size=9))
def test_wilcoxons_test_counts_all_signs(gaps: list[int]) -> None:
    found = ranks_of({str(n): {"a": gap, "b": 0.0} for n, gap in enumerate(gaps)})
    assert found is not None
    (pair,) = found.pairs
    there = [gap for gap in gaps if gap]
    assert (pair.wins, pair.ties) == (sum(gap > 0 for gap in gaps), gaps.count(0))
    ranks = scipy.stats.rankdata([abs(gap) for gap in there])
    half = sum(ranks) / 2
    own = abs(sum(r for r, gap in zip(ranks, there, strict=True) if gap > 0) - half)
    every = [
        abs(sum(r for r, up in zip(ranks, signs, strict=True) if up) - half)
        for signs in itertools.product((False, True), repeat=len(there))
    ]
    assert pair.p == pytest.approx(sum(one >= own - 1e-9 for one in every) / len(every))


def test_holm_multiplies_the_least_p_by_the_number_of_pairs_and_never_falls() -> None:
    values = {
        str(n): {"best": 1.0 + n / 10, "middle": 0.5 + n / 20, "worst": n / 100} for n in range(8)
    }
    found = ranks_of(values)
    assert found is not None
    # All of 8 gaps of one sign: 2 / 256, of three pairs.
    assert [pair.p for pair in found.pairs] == pytest.approx([3 * 2 / 256] * 3)
    assert found.mean_ranks == {"best": 1.0, "middle": 2.0, "worst": 3.0}


def test_the_critical_difference_is_demsars() -> None:
    """His table 6: four systems on 14 data sets."""
    values = {str(n): dict.fromkeys("abcd", 0.0) for n in range(14)}
    found = ranks_of(values)
    assert found is not None
    assert found.critical_difference == pytest.approx(1.25, abs=0.005)
    expected = scipy.stats.studentized_range.ppf(0.95, 4, math.inf) / math.sqrt(2)
    assert found.critical_difference == pytest.approx(expected * math.sqrt(20 / 84), rel=1e-3)


def test_what_failed_ranks_last_and_two_that_failed_are_equal() -> None:
    failed = -math.inf
    found = ranks_of({"x": {"a": failed, "b": failed}, "y": {"a": failed, "b": 0.1}})
    assert found is not None
    assert found.mean_ranks == {"a": 1.75, "b": 1.25}
    (pair,) = found.pairs
    assert (pair.wins, pair.ties, pair.losses) == (0, 1, 1)


def test_one_data_set_is_no_ranking() -> None:
    assert ranks_of({"x": {"a": 1.0, "b": 0.5}}) is None
    assert ranks_of({}) is None


def test_wilcoxons_test_is_exact_for_all_sets_of_the_archive() -> None:
    gaps = [(-1) ** (n % 3) * (n + 1) for n in range(84)]
    found = ranks_of({str(n): {"a": gap, "b": 0.0} for n, gap in enumerate(gaps)})
    assert found is not None
    known: Any = scipy.stats.wilcoxon(gaps, method="exact")
    assert found.pairs[0].p == pytest.approx(known.pvalue)
