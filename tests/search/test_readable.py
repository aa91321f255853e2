"""Numbers as people read them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.documents.readable import interval, metric, number, seconds


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (392146.2, "392,100"),
        (0.964323, "0.9643"),
        (12, "12"),
        (1234567, "1,234,567"),
        (99999.9, "100,000"),
        (1e6, "1,000,000"),
        (-1234.5, "-1,234"),
        (0.1, "0.1"),
        (0.0, "0"),
        (1.2e-06, "1.2e-06"),
        (None, "–"),
        (float("nan"), "nan"),
    ],
)
def test_numbers_have_four_digits_and_no_exponent(value: float | None, told: str) -> None:
    assert number(value) == told


@given(st.floats(min_value=1e-4, max_value=1e14), st.integers(1, 8))
def test_a_number_is_what_it_says_but_for_rounding(value: float, digits: int) -> None:
    told = number(value, digits)
    assert "e" not in told
    assert float(told.replace(",", "")) == pytest.approx(value, rel=0.51 * 10.0 ** (1 - digits))


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (2.5, "2.50 s"),
        (0.0123, "12.3 ms"),
        (1.4e-05, "14.0 µs"),
        (3e-9, "0.00300 µs"),
        (0, "0.00 µs"),
    ],
)
def test_short_times_have_a_unit_that_fits(value: float, told: str) -> None:
    assert seconds(value) == told


def test_accuracies_are_told_in_percent() -> None:
    assert metric("accuracy", 0.9425) == "94.25 %"
    assert metric("mse", 0.0021313) == "0.002131"
    assert interval("accuracy", (0.9, 0.95)) == "90.00 % to 95.00 %"
    assert interval("mse", None) == "–"
