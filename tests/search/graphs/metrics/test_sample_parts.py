"""Parts of a user's samples, intervals over them, and originals that tell nothing."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.errors import SpecRefused
from search.graphs.metrics import (
    Agreement,
    CtcString,
    Kl,
    RelativeError,
    refuse_constant,
    refuse_unusable,
    split_samples,
    wilson,
)


def test_wilsons_interval_has_its_closed_form() -> None:
    """Its ends are where the share is 1.96 standard deviations of a true share away."""
    for successes, count in ((1, 10), (27, 30), (60, 64), (500, 1000)):
        share = successes / count
        found = wilson(share, count)
        for end in (found.low, found.high):
            deviation = math.sqrt(end * (1 - end) / count)
            assert abs(share - end) == pytest.approx(1.959964 * deviation, rel=1e-5)
        assert found.low < share < found.high


def test_wilsons_interval_of_none_and_of_all() -> None:
    z2 = 1.959963984540054**2
    none, everything = wilson(0.0, 20), wilson(1.0, 20)
    assert none.low == pytest.approx(0, abs=1e-12)
    assert none.high == pytest.approx(z2 / (20 + z2))
    assert everything.low == pytest.approx(20 / (20 + z2))
    assert everything.high == pytest.approx(1)


@given(st.integers(40, 2000), st.integers(0, 5))
def test_parts_hold_every_sample_once(count: int, seed: int) -> None:
    split = split_samples(count, seed=seed)
    parts = (split.calibration, split.choosing, split.test)
    assert sorted(np.concatenate(parts)) == list(range(count))
    for part, share in zip(parts, (0.4, 0.2, 0.4), strict=True):
        assert abs(len(part) - share * count) <= 1
        assert list(part) == sorted(part)


def test_parts_are_drawn_by_their_seed() -> None:
    one, again, other = split_samples(100), split_samples(100), split_samples(100, seed=1)
    np.testing.assert_array_equal(one.test, again.test)
    assert set(one.test) != set(other.test)
    assert set(one.calibration) != set(range(40))
    assert len(one.calibration) == 40


def test_few_samples_are_warned_of_and_very_few_refused() -> None:
    assert split_samples(160).warning is None
    assert "only 63 samples" in str(split_samples(159).warning)
    assert len(split_samples(40).calibration) == 16
    with pytest.raises(SpecRefused, match=r"15 of 39 samples are for calibration; .* 16"):
        split_samples(39)
    with pytest.raises(SpecRefused, match="20 samples 0 are for choosing and 2 for the test"):
        split_samples(20, (0.9, 0.01, 0.09))


@pytest.mark.parametrize(
    "shares", [(0.4, 0.6), (0.5, 0.5, 0.5), (1.0, 0.5, -0.5), (1, 0, 0), (math.nan, 0.5, 0.5)]
)
def test_shares_that_are_none_are_refused(shares: tuple[float, ...]) -> None:
    with pytest.raises(SpecRefused, match=r"task.split: .*; allowed are three shares above 0"):
        split_samples(1000, shares)


def answers(count: int = 20) -> list[np.ndarray]:
    return list(np.random.default_rng(0).standard_normal((count, 3, 4)).astype(np.float32))


def test_an_original_that_answers_the_same_twice_is_taken() -> None:
    refuse_unusable({"y": answers()}, {"y": answers()})
    whole = [np.arange(3)]
    refuse_unusable({"y": whole}, {"y": whole})


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_an_original_that_answers_no_number_is_refused(value: float) -> None:
    wrong = answers()
    wrong[5][1, 1] = value
    with pytest.raises(SpecRefused, match=r"output 'y' is not finite on sample 5 \(from 0\)"):
        refuse_unusable({"x": answers(), "y": wrong}, {"x": answers(), "y": wrong})


def test_an_original_that_answers_by_chance_is_refused() -> None:
    other = answers()
    other[3] = np.nextafter(other[3], 10)
    with pytest.raises(SpecRefused, match=r"two runs .* differ in the output 'y' on sample 3"):
        refuse_unusable({"y": answers()}, {"y": other})


def coins(ones: int, count: int) -> list[np.ndarray]:
    return [np.array([0.9 if place < ones else 0.1]) for place in range(count)]


def test_an_original_that_decides_nearly_always_the_same_is_refused() -> None:
    for metric in (Kl(), Agreement(), Agreement(column=True)):
        refuse_constant(metric, {"y": coins(5, 1000)})
        with pytest.raises(SpecRefused, match=r"99.6 % of the decisions of the output 'y'"):
            refuse_constant(metric, {"y": coins(4, 1000)})
        with pytest.raises(SpecRefused, match=r"100\.0 % of the decisions"):
            refuse_constant(metric, {"x": coins(500, 1000), "y": coins(1000, 1000)})


def test_strings_and_numbers_that_never_change_are_refused() -> None:
    line = np.eye(4)[[1, 0, 2]]
    with pytest.raises(SpecRefused, match=r"100\.0 % of the decisions"):
        refuse_constant(CtcString(), {"y": [line, np.eye(4)[[1, 2, 2]]]})
    refuse_constant(CtcString(), {"y": [line, np.eye(4)[[2, 2, 1]]]})
    with pytest.raises(SpecRefused, match=r"output 'y' is 2\.0 for all samples"):
        refuse_constant(RelativeError(), {"y": [np.full(3, 2.0)] * 4})
    refuse_constant(RelativeError(), {"y": answers()})
