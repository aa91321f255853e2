"""Verdicts: against the rule as it is written down, at its edges, and over random numbers."""

import math
import statistics
from collections.abc import Sequence

import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from search.documents.papers import Claim, Fails, PrintedValue, Reaches, RowEntry, Source
from search.papers import TABLES
from search.papers.verdicts import Measured, Verdict, judge

SHARES = st.floats(0, 1)


def row(claim: Claim | None, *, test: int | None = 100, unreachable: str | None = None) -> RowEntry:
    return RowEntry(
        key="GunPoint/rnn-32",
        system="rnn-32",
        title="RNN",
        description="A plain network.",
        source=Source(paper="a paper", table="table 1", row="RNN"),
        claim=claim,
        direction="maximize" if claim is None else claim.direction,
        test_samples=test,
        printed_parameters=None,
        parameters=10,
        updates=100,
        predicted_seconds=1.0,
        erratum=None,
        deviation=None,
        unreachable=unreachable,
        spec={},
    )


def printed(value: float, direction: str = "maximize") -> PrintedValue:
    metric = {"maximize": "accuracy", "minimize": "mse"}[direction]
    return PrintedValue.model_validate({"metric": metric, "direction": direction, "value": value})


def seeds(*values: float | None, updates: int = 100) -> Sequence[Measured]:
    return [
        Measured(seed=seed, value=value, updates=updates, reason=None if value else "diverged")
        for seed, value in enumerate(values)
    ]


def verdict(claim: Claim | None, *values: float | None, test: int | None = 100) -> Verdict:
    return judge(row(claim, test=test), seeds(*values))


def test_one_seed_and_two_say_nothing_yet() -> None:
    for values in ((), (0.9,), (0.9, 0.9)):
        found = verdict(printed(0.9), *values)
        assert found.kind == "not yet"
        assert found.why == f"{len(values)} of 3 seeds"
    one = verdict(printed(0.9), 0.8)
    assert (one.mean, one.half_width, one.seeds) == (0.8, None, 1)
    assert one.difference == pytest.approx(-0.1)


@pytest.mark.parametrize(
    ("mean", "kind"), [(0.85, "not reproduced"), (0.88, "reproduced"), (0.94, "better")]
)
def test_without_variance_the_printed_shares_own_error_decides(mean: float, kind: str) -> None:
    """sqrt(.9 * .1 / 100) = .03."""
    found = verdict(printed(0.9), mean, mean, mean)
    assert found.kind == kind
    assert found.half_width == 0.0


def test_a_printed_share_of_one_has_no_error() -> None:
    assert verdict(printed(1.0), 1.0, 1.0, 1.0).kind == "reproduced"
    assert verdict(printed(1.0), 0.999, 0.999, 0.999).kind == "not reproduced"
    spread = verdict(printed(1.0), 1.0, 1.0, 0.99, 1.0, 1.0)
    assert spread.kind == "reproduced", "the interval of five seeds holds 1"


def test_a_wide_interval_of_few_seeds_does_not_make_up_for_a_mean_that_falls_short() -> None:
    few = verdict(printed(0.9), 0.9, 0.5, 0.8)
    assert (few.kind, few.why) == ("not yet", "3 of 5 seeds: within their interval alone")
    assert verdict(printed(0.9), 0.9, 0.5, 0.8, 0.9, 0.8).kind == "reproduced"
    assert verdict(printed(0.9), 0.94, 0.84, 0.88).kind == "reproduced", "within the share's error"


def test_the_interval_is_students() -> None:
    values = (0.91, 0.95, 0.90, 0.97)
    found = verdict(printed(0.9), *values)
    half = scipy.stats.t.ppf(0.975, 3) * statistics.stdev(values) / 2
    assert found.half_width == pytest.approx(half, rel=1e-12)
    assert found.mean == pytest.approx(statistics.fmean(values))


def test_losses_are_the_mirror_image_and_have_no_share_error() -> None:
    claim = printed(0.003, "minimize")
    assert verdict(claim, 0.003, 0.003, 0.003).kind == "reproduced"
    assert verdict(claim, 0.0031, 0.0031, 0.0031).kind == "not reproduced"
    assert verdict(claim, 0.0029, 0.0029, 0.0029).kind == "better"


@given(value=SHARES, measured=st.lists(SHARES, min_size=3, max_size=6), test=st.integers(1, 10_000))
def test_the_verdict_is_the_rule_that_is_written_down(
    value: float, measured: list[float], test: int
) -> None:
    found = verdict(printed(value), *measured, test=test)
    if not all(measured):
        return
    count, mean = len(measured), statistics.fmean(measured)
    half = scipy.stats.t.ppf(0.975, count - 1) * statistics.stdev(measured) / math.sqrt(count)
    share = math.sqrt(value * (1 - value) / test)
    near = max(half, share)
    if any(abs(abs(mean - value) - one) < 1e-8 for one in (near, share)):
        return
    expected = "not reproduced" if mean < value - near else "reproduced"
    if expected == "reproduced" and mean < value - share and count < 5:
        expected = "not yet"
    assert found.kind == ("better" if mean > value + near else expected)


@given(value=SHARES, measured=st.lists(st.floats(0.001, 1), min_size=3, max_size=6))
def test_a_loss_is_judged_as_its_negative_would_be(value: float, measured: list[float]) -> None:
    up = PrintedValue(metric="loss", direction="maximize", value=value)
    down = PrintedValue(metric="loss", direction="minimize", value=-value)
    negated = [-one for one in measured]
    assert verdict(up, *measured).kind == verdict(down, *negated).kind


@given(value=SHARES, measured=st.floats(0.001, 1), seeds=st.integers(3, 5))
def test_reaching_and_failing_exclude_each_other(value: float, measured: float, seeds: int) -> None:
    reaches = Reaches(metric="mse", direction="minimize", value=value, updates=100)
    fails = Fails(metric="mse", direction="minimize", value=value, updates=100)
    kinds = {verdict(claim, *[measured] * seeds).kind for claim in (reaches, fails)}
    assert kinds == {"reproduced", "not reproduced"}


@pytest.mark.parametrize("claim", [Reaches, Fails])
def test_few_seeds_that_do_not_agree_settle_no_claim(claim: type[Reaches | Fails]) -> None:
    half = claim(metric="accuracy", direction="maximize", value=0.5, updates=100)
    early = verdict(half, 0.1, 0.9, 0.1)
    assert (early.kind, early.why) == ("not yet", "1 of 3 seeds reach it; 5 settle it")
    fails = claim is Fails
    assert verdict(half, 0.1, 0.2, 0.1).kind == ("reproduced" if fails else "not reproduced")
    settled = verdict(half, 0.1, 0.9, 0.1, 0.1, 0.1)
    assert settled.kind == ("reproduced" if fails else "not reproduced")
    assert verdict(half, 0.1, None, 0.1).kind == ("reproduced" if fails else "not reproduced")


def test_most_seeds_decide_a_claim_and_those_that_failed_do_not_reach_it() -> None:
    reaches = Reaches(metric="mse", direction="minimize", value=0.15, updates=100)
    fails = Fails(metric="mse", direction="minimize", value=0.15, updates=100)
    # The one value that there is would be their mean.
    found = verdict(fails, None, None, 0.0003, None, None)
    assert found.kind == "reproduced"
    assert found.why is not None
    assert found.why.startswith("1 of 5 seeds reach it; seed 0: diverged; ")
    assert found.mean == 0.0003
    assert verdict(reaches, None, None, 0.0003, None, None).kind == "not reproduced"
    assert verdict(reaches, 0.1, 0.1, 0.1, None, 0.9).kind == "reproduced"
    # No mean, which one seed can move as far as it likes.
    assert verdict(reaches, 0.1, 0.1, 0.1, 0.1, 900).kind == "reproduced"
    halves = [0.1, 0.1, 0.1, None, 0.9, 0.9]
    assert {verdict(claim, *halves).kind for claim in (reaches, fails)} == {"not reproduced"}


def unfinished(best: float | None) -> Measured:
    return Measured(seed=9, value=None, updates=50, unfinished=True, best_validation=best)


@pytest.mark.parametrize("claim", [Reaches, Fails])
def test_what_reaches_a_claim_before_its_end_counts(claim: type[Reaches | Fails]) -> None:
    below = claim(metric="mse", direction="minimize", value=0.15, updates=100)
    reached, open_still, bare = unfinished(0.1), unfinished(0.16), unfinished(None)
    kind = "reproduced" if claim is Reaches else "not reproduced"
    found = judge(row(below), [reached] * 3)
    assert (found.kind, found.why) == (kind, "3 of 3 seeds reach it, 3 before the end")
    assert (found.seeds, found.mean, found.difference) == (3, None, None)
    mixed = judge(row(below), [*seeds(0.1, 0.12), reached])
    assert (mixed.kind, mixed.why) == (kind, "3 of 3 seeds reach it, 1 before the end")
    assert mixed.mean == pytest.approx(0.11)
    split = judge(row(below), [*seeds(0.1, 0.2), reached])
    assert split.why == "2 of 3 seeds reach it, 1 before the end; 5 settle it"
    # What has not reached it may do so later, or never.
    few = judge(row(below), [*seeds(0.2, 0.2), open_still, bare])
    assert (few.kind, few.why, few.seeds) == ("not yet", "2 of 3 seeds", 2)
    higher = claim(metric="accuracy", direction="maximize", value=0.15, updates=100)
    assert judge(row(higher), [unfinished(0.2)] * 3).kind == kind


def test_a_printed_value_is_one_of_the_end() -> None:
    found = judge(row(printed(0.1)), [unfinished(0.9)] * 3)
    assert (found.kind, found.why, found.seeds) == ("not yet", "0 of 3 seeds", 0)


def test_too_few_updates_are_not_yet() -> None:
    claim = Fails(metric="mse", direction="minimize", value=0.15, updates=101)
    found = judge(row(claim), seeds(0.2, 0.2, 0.2))
    assert found.kind == "not yet"
    assert found.why == "0 of 3 seeds, 3 with too few updates"
    assert judge(row(claim), seeds(0.2, 0.2, 0.2, updates=101)).kind == "reproduced"


def test_a_training_that_failed_is_shown_and_counts_against_the_claim() -> None:
    found = verdict(printed(0.9), 0.95, None, 0.95)
    assert (found.kind, found.why, found.seeds) == ("not reproduced", "seed 1: diverged", 3)
    assert found.mean == 0.95
    claim = Fails(metric="accuracy", direction="maximize", value=0.5, updates=100)
    assert verdict(claim, None, None, None).kind == "reproduced"


def test_what_cannot_be_says_why_whatever_was_measured() -> None:
    found = judge(row(printed(0.64), unreachable="a constant predictor"), seeds(0.8, 0.8, 0.8))
    assert (found.kind, found.why) == ("cannot be", "a constant predictor")
    assert found.mean == pytest.approx(0.8)
    assert verdict(None, 0.8, 0.8, 0.8).kind == "cannot be"


def test_every_row_of_every_table_can_be_judged() -> None:
    for table in TABLES.values():
        for entry in table.document().entries:
            expected = "cannot be" if entry.unreachable else "not yet"
            assert judge(entry, []).kind == expected, entry.key


def ended(*values: float, updates: int = 100) -> list[Measured]:
    return [Measured(seed=n, value=value, updates=updates) for n, value in enumerate(values)]


def test_seeds_that_may_still_reach_it_must_not_be_able_to_turn_a_verdict() -> None:
    claim = Reaches(metric="mse", direction="minimize", value=0.167, updates=100)
    failing = Fails(metric="mse", direction="minimize", value=0.167, updates=100)
    open_still = unfinished(0.3)
    reached = [unfinished(0.1)] * 3
    assert judge(row(claim), reached + [open_still] * 2).kind == "reproduced"
    found = judge(row(claim), reached + [open_still] * 6)
    assert (found.kind, found.seeds) == ("not yet", 3)
    assert found.why is not None
    assert found.why.endswith("6 that have updates left may decide otherwise")
    assert judge(row(failing), reached + [open_still] * 6).kind == "not yet"
    # One that was ended after too few updates says no more than one that has not ended.
    long, short = ended(0.1, 0.1, 0.1), ended(0.3, 0.3, updates=1)
    assert judge(row(claim), long + short).kind == "reproduced"
    assert judge(row(claim), long + short * 2).kind == "not yet"
