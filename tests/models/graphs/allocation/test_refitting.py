import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from models.graphs.allocation import (
    Probed,
    nonnegative_least_squares,
    predicted_loss,
    refitted,
    sensitivities,
)


@given(st.integers(1, 12), st.integers(1, 8), st.integers(0, 10**6))
@settings(deadline=None, max_examples=60)
def test_least_squares_are_those_of_lawson_and_hanson(rows: int, columns: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    matrix = np.concatenate([generator.standard_normal((rows, columns)), 0.3 * np.eye(columns)])
    target = generator.standard_normal(rows + columns)
    wanted, residual = nnls(matrix, target)
    found = nonnegative_least_squares(matrix, target)
    assert (found >= 0).all()
    assert np.linalg.norm(matrix @ found - target) == pytest.approx(residual, rel=1e-6)
    assert found == pytest.approx(wanted, abs=1e-4)


def test_columns_of_zeros_get_nothing() -> None:
    matrix = np.array([[1.0, 0.0], [1.0, 0.0]])
    assert nonnegative_least_squares(matrix, np.array([2.0, 4.0])) == pytest.approx([3.0, 0.0])


def test_a_sensitivity_is_the_geometric_mean_over_probes() -> None:
    measured = {"a": [Probed(0.4, 0.1), Probed(0.09, 0.01)], "b": [Probed(0.0, 0.5)], "c": []}
    found = sensitivities(measured)
    assert found == pytest.approx({"a": 6.0, "b": 2e-9, "c": 0.0})
    assert predicted_loss(found, {"a": 0.5, "c": 3.0}) == pytest.approx(3.0)


def _trials(true: dict[str, float], count: int) -> tuple[list[dict[str, float]], list[float]]:
    generator = np.random.default_rng(1)
    errors = [{name: float(10 ** generator.uniform(-4, -1)) for name in true} for _ in range(count)]
    return errors, [predicted_loss(true, row) for row in errors]


def test_refitting_finds_the_sensitivities_that_losses_come_from() -> None:
    true = {"a": 3.0, "b": 0.2, "c": 40.0}
    errors, losses = _trials(true, 60)
    found = refitted({"a": 1.0, "b": 1.0, "c": 1.0}, errors, losses, prior=1e-9)
    assert found == pytest.approx(true, rel=1e-3)


def test_refitting_predicts_better_than_before() -> None:
    true = {"a": 3.0, "b": 0.2, "c": 40.0, "d": 1.0}
    errors, losses = _trials(true, 25)
    before = {"a": 1.0, "b": 1.0, "c": 10.0, "d": 2.0}
    after = refitted(before, errors, losses)
    unseen, wanted = _trials(true, 80)

    def off(sensitivity: dict[str, float]) -> float:
        pairs = zip(unseen[25:], wanted[25:], strict=True)
        return float(
            np.mean([abs(np.log(predicted_loss(sensitivity, row) / loss)) for row, loss in pairs])
        )

    assert off(after) < 0.5 * off(before)


def test_a_layer_that_was_never_changed_keeps_its_sensitivity() -> None:
    errors = [{"a": 0.1}, {"a": 0.2}]
    found = refitted({"a": 1.0, "b": 7.0}, errors, [0.3, 0.6], prior=0.01)
    assert found["b"] == pytest.approx(7.0)
    assert found["a"] == pytest.approx(3.0, rel=0.1)


def test_without_trials_nothing_changes() -> None:
    assert refitted({"a": 2.0, "b": 7.0}, [], []) == pytest.approx({"a": 2.0, "b": 7.0})


def test_no_sensitivity_falls_below_a_thousandth() -> None:
    found = refitted({"a": 5.0, "b": 5.0}, [{"a": 0.1, "b": 0.1}], [1e-9], prior=1e-9)
    assert found == pytest.approx({"a": 5e-3, "b": 5e-3})
