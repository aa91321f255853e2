"""Costs in decades, whichever way a metric is better."""

import pytest

from search.stopping.curves import Curve, Standings, best_so_far, log_error, standing_before


def test_errors_of_accuracies_and_losses_fall_when_models_get_better() -> None:
    assert log_error(0.9, "maximize", smallest=1 / 400) == pytest.approx(-1)
    assert log_error(1.0, "maximize", smallest=1 / 400) == pytest.approx(-2.60206)
    assert log_error(0.01, "minimize") == pytest.approx(-2)
    assert log_error(0.0, "minimize") == pytest.approx(-9)
    assert log_error(0.2, "maximize") > log_error(0.3, "maximize")
    assert log_error(0.3, "minimize") > log_error(0.2, "minimize")


def test_the_best_epoch_counts() -> None:
    assert best_so_far([-1.0, -2.0, -1.5, -2.5]) == (-1.0, -2.0, -2.0, -2.5)


def test_better_are_those_as_cheap_and_ahead_after_as_many_epochs() -> None:
    curves = [
        Curve(number=0, errors=(-1.0, -1.0), costs=(2.0, -3.0)),
        Curve(number=1, errors=(-2.0,), costs=(2.0, -3.0)),
        Curve(number=2, errors=(-3.0, -3.0), costs=(2.0, -3.0)),
        Curve(number=3, errors=(-3.0, -3.0), costs=(2.1, -3.0)),
        Curve(number=4, errors=(-3.0, -3.0), costs=(1.0, -2.9)),
        Curve(number=5, errors=(-1.0, -1.0), costs=(1.0, -4.0)),
        Curve(number=6, errors=(-1.0, -4.0), costs=(1.0, -4.0)),
    ]
    study = Standings({curve.number: curve for curve in curves}, (0.0, 9.0, 0.0), epochs=10)
    assert study.better(curves[0], 1) == (2, 1)
    assert study.better(curves[0], 2) == (6, 2)


def test_a_sentence_names_three_at_most() -> None:
    assert standing_before([]) == ""
    assert standing_before([4]) == "; 4 stands before it"
    assert standing_before([4, 2]) == "; 4 and 2 stand before it"
    assert standing_before([4, 2, 9]) == "; 4, 2 and 9 stand before it"
    assert standing_before([4, 2, 9, 1]) == "; 4, 2, 9 and 1 more stand before it"
