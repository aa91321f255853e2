"""The known-cost sampler's pure core, each part by another road."""

import math

import moocore
import numpy as np
import pytest
from scipy.stats import norm

from models.exports.c.export import export
from search.samplers.modelling.acquisition import (
    Candidates,
    History,
    expected_final,
    expected_gain,
    rank,
    spread,
)
from search.samplers.modelling.costs import Costs
from search.samplers.modelling.gaussian_process import NOISES, fit
from search.sampling.sampler_context import sampler_context_of
from search.spaces.draws import CornerSource
from search.spaces.space import SearchSpace
from search.studies.spec import StudySpec
from tests.search.samplers.test_samplers import Played


def matern_by_loops(a: np.ndarray, b: np.ndarray, length: float) -> np.ndarray:
    found = np.empty((len(a), len(b)))
    for i, left in enumerate(a):
        for j, right in enumerate(b):
            r = math.dist(left, right) / length
            found[i, j] = (1 + math.sqrt(5) * r + 5 * r**2 / 3) * math.exp(-math.sqrt(5) * r)
    return found


def test_the_process_is_the_conditional_of_a_joint_normal() -> None:
    rng = np.random.default_rng(0)
    seen, values = rng.random((15, 3)), rng.normal(size=15)
    weights = rng.choice([1.0, 4.0], 15)
    fresh = rng.random((6, 3))
    process = fit(seen, values, weights)

    everything = np.vstack([seen, fresh])
    joint = matern_by_loops(everything, everything, process.length)
    joint[:15, :15] += np.diag(process.noise * weights)
    joint *= process.variance
    gain = joint[15:, :15] @ np.linalg.inv(joint[:15, :15])
    mean = process.mean + gain @ (values - process.mean)
    covariance = joint[15:, 15:] - gain @ joint[:15, 15:]
    predicted, deviation = process.predict(fresh)
    np.testing.assert_allclose(predicted, mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(deviation, np.sqrt(np.diag(covariance)), rtol=1e-4)

    away = values - process.mean
    exponent = away @ np.linalg.solve(joint[:15, :15], away)
    log_determinant = np.linalg.slogdet(joint[:15, :15])[1]
    density = -0.5 * (exponent + log_determinant + 15 * math.log(2 * math.pi))
    assert process.log_likelihood == pytest.approx(density, abs=1e-4)


def test_noise_is_told_from_signal() -> None:
    rng = np.random.default_rng(1)
    seen = rng.random((40, 1))
    smooth = fit(seen, np.sin(2 * seen[:, 0]), np.ones(40))
    noise_alone = fit(seen, rng.normal(size=40), np.ones(40))
    assert smooth.noise == min(NOISES)
    assert noise_alone.noise == max(NOISES)


def test_values_without_any_spread_are_predicted_as_they_are() -> None:
    mean, deviation = fit(np.zeros((3, 2)), np.full(3, -2.0), np.ones(3)).predict(np.ones((1, 2)))
    assert mean[0] == pytest.approx(-2.0)
    assert 0 < deviation[0] < 1e-3


@pytest.mark.parametrize("costs", [0, 1, 2])
def test_expected_gain_is_the_mean_of_exact_hypervolume_gains(costs: int) -> None:
    """Quantiles of the error and moocore's hypervolume, one candidate at a time."""
    rng = np.random.default_rng(costs)
    front_costs, front_errors = rng.random((9, costs)), np.log(rng.random(9))
    # Some of the front and of the candidates lie beyond the reference point.
    reference_costs, reference_error = np.full(costs, 0.9), math.log(0.8)
    candidate_costs = rng.random((5, costs))
    mean, deviation = np.log(rng.random(5)), rng.random(5) * 0.5 + 0.1
    gains = expected_gain(
        front_costs,
        front_errors,
        candidate_costs,
        mean,
        deviation,
        reference_error=reference_error,
        reference_costs=reference_costs,
    )
    reference = np.array([math.exp(reference_error), *reference_costs])
    front = np.column_stack([np.exp(front_errors), front_costs])

    def volume(points: np.ndarray) -> float:
        if costs == 0:
            return max(0.0, reference[0] - points.min())
        return float(moocore.hypervolume(points, ref=reference))

    for index in range(5):
        drawn = np.exp(mean[index] + deviation[index] * norm.ppf((np.arange(1000) + 0.5) / 1000))
        before = volume(front)
        gained = [
            volume(np.vstack([front, [error, *candidate_costs[index]]])) - before for error in drawn
        ]
        assert gains[index] == pytest.approx(np.mean(gained), rel=1e-3, abs=1e-5)


def test_the_gain_over_no_front_is_the_whole_box() -> None:
    gain = expected_gain(
        np.empty((0, 2)),
        np.empty(0),
        np.array([[1.0, 2.0]]),
        np.array([math.log(0.25)]),
        np.array([1e-9]),
        reference_error=0.0,
        reference_costs=np.array([3.0, 5.0]),
    )
    assert gain == pytest.approx([0.75 * 2 * 3])


def test_a_running_trial_keeps_others_from_its_place() -> None:
    candidates = Candidates(
        features=np.array([[0.0], [1.0]]), costs=np.array([[1.0, 2.0], [2.2, 1.0]])
    )

    def proposed(*, running: bool) -> int:
        """After one finished trial, and one of the first candidate's configuration."""
        history = History(
            features=np.array([[0.5], [0.0]]),
            costs=np.array([[2.9, 2.9], [1.0, 2.0]]),
            errors=np.array([-1.0, np.nan]),
            noise_weights=np.ones(2),
            finished=np.array([True, False]),
            running=np.array([False, running]),
        )
        order = rank(
            history,
            candidates,
            reference_error=0.0,
            reference_costs=np.array([3.0, 3.0]),
            baseline_error=0.0,
        )
        return int(order[0])

    assert proposed(running=False) == 0
    assert proposed(running=True) == 1


def test_a_line_through_finished_curves_tells_the_end() -> None:
    then = np.array([-1.0, -1.5, -2.0])
    assert expected_final(-1.2, then, 0.5 * then - 1) == pytest.approx(-1.6)
    assert expected_final(-1.2, then, 5 * then) == pytest.approx(-7.5 + (-1.2 + 1.5))
    assert expected_final(-3.0, then, -then) == pytest.approx(1.5 + 0.3 * (-3.0 + 1.5))
    assert expected_final(-1.2, then[:0], then[:0]) == -1.2


def test_the_farthest_point_is_the_next_of_a_spread_start() -> None:
    points = np.array([[0.0, 0.0], [5.0, 5.0], [9.0, 9.0]])
    assert spread(points[:0], points) == 0
    assert spread(np.array([[9.0, 9.0], [4.0, 4.0]]), points) == 0
    assert spread(np.array([[1.0, 0.0]]), points) == 2


def test_tables_of_c_files_are_a_cost_that_is_known_exactly() -> None:
    document = {
        "task": {"kind": "digits", "layout": "rows"},
        "architectures": ["gru"],
        "objectives": ["quality", "bytes"],
        "export": {"file": "c"},
    }
    spec = StudySpec.model_validate(document)
    space = SearchSpace(spec)
    context = sampler_context_of(spec, space, Played({"kind": "random"}).past)
    drawn = [space.draw(CornerSource(highest=highest)) for highest in (False, True)]
    tables = [
        export(one.spec.model.build(seed=1).eval(), one.spec.model).tables_bytes for one in drawn
    ]
    assert [context.file_bytes(one.spec) for one in drawn] == tables
    costs = Costs(spec.objectives, [], file_bytes=context.file_bytes).of_draws(drawn)
    np.testing.assert_allclose(costs[:, 0], np.log10(tables))
    for most, refused in ((tables[0], [False, True]), (tables[0] - 1, [True, True])):
        limited = StudySpec.model_validate({**document, "limits": {"bytes": most}})
        asked = sampler_context_of(limited, space, context.past)
        assert [asked.is_refused(one) for one in drawn] == refused
