"""How errors at rungs carry to the end: by hand, and on curves that are made to a rule."""

import math

import numpy as np
import pytest

from search.samplers.pausing.learning_curves import fit_curves

RUNGS = (1, 2, 4)
NAN = math.nan


def at(values: list[int]) -> np.ndarray:
    return np.array(values, np.int64)


def test_without_a_trial_errors_fall_by_half_the_logarithm() -> None:
    curves = fit_curves(np.empty((0, 3)), at([]), RUNGS)
    mean, variance = curves.carried(np.array([-1.0, -1.0, -1.0]), at([0, 1, 2]), at([7, 7, 7]))
    assert mean == pytest.approx([-1 - math.log(2), -1 - 0.5 * math.log(2), -1.0])
    each = (0.25**2 + 2 * 0.2**2) * math.log(2)
    assert variance == pytest.approx([2 * each, each, 0.0])


def test_steps_are_lines_with_pooled_offsets_and_are_chained() -> None:
    """Two families, two trials each at the first step and one trial at the second, by hand."""
    errors = np.array([[-1.0, -1.5, -2.0], [-2.0, -2.2, NAN], [-1.0, -1.1, NAN], [-2.0, -2.0, NAN]])
    curves = fit_curves(errors, at([3, 3, 5, 5]), RUNGS)
    length = math.log(2)

    # From 1 to 2: the centre is -1.5, Sxx is 1 and Sxy is (-2.2 - 2.0 + 1.5 + 1.1) * -0.5.
    slope = (0.8 + 0.5) / (1.0 + 0.5)
    away, after = np.array([0.5, -0.5, 0.5, -0.5]), np.array([-1.5, -2.2, -1.1, -2.0])
    rest = after + 1.5 - slope * away
    means = rest[:2].mean(), rest[2:].mean()
    level = (means[0] + means[1] - 0.5 * length) / 3
    within = sum((rest[:2] - means[0]) ** 2) + sum((rest[2:] - means[1]) ** 2)
    noise = (within + 4 * 0.25**2 * length) / (2 + 4)
    wide = 0.2**2 * length
    offsets = [wide * 2 * (mean - level) / (noise + 2 * wide) for mean in means]
    unsure = wide * noise / (noise + 2 * wide)

    # From 2 to 4: one trial; its slope is 1 and its rest is -0.5.
    level_2 = (-0.5 - 0.5 * length) / 2
    noise_2 = 0.25**2 * length
    offset_2 = wide * (-0.5 - level_2) / (noise_2 + wide)
    unsure_2 = wide * noise_2 / (noise_2 + wide)

    mean, variance = curves.carried(np.full(3, -1.2), at([0, 0, 0]), at([3, 5, 9]))
    step = -1.5 + slope * 0.3 + level
    assert mean == pytest.approx(
        [step + offsets[0] + level_2 + offset_2, step + offsets[1] + level_2, step + level_2]
    )
    # Of the levels, one in three and one in two families' spread is not known.
    both = noise + noise_2 + wide / 3 + wide / 2
    assert variance == pytest.approx(
        [both + unsure + unsure_2, both + unsure + wide, both + wide + wide]
    )
    rungs, families = at([0, 1, 0, 2]), at([3, 3, 5, 3])
    shared = curves.shared(rungs, families, rungs, families)
    assert shared[0] == pytest.approx(
        [wide / 3 + wide / 2 + unsure + unsure_2, wide / 2 + unsure_2, wide / 3 + wide / 2, 0]
    )
    assert shared[3] == pytest.approx(np.zeros(4))
    assert curves.variance(rungs, families) - np.diag(shared) == pytest.approx(
        [noise + noise_2, noise_2, noise + noise_2, 0]
    )


def test_a_slow_family_is_told_from_the_others_and_an_unknown_one_is_wide() -> None:
    generator = np.random.default_rng(0)
    first = generator.normal(-1, 0.3, 40)
    families = np.repeat([0, 1], 20)
    last = first - np.where(families == 0, 0.2, 1.2) + generator.normal(0, 0.02, 40)
    curves = fit_curves(np.column_stack([first, last]), families, (1, 8))
    mean, variance = curves.carried(np.full(3, -1.0), at([0, 0, 0]), at([0, 1, 2]))
    assert mean[0] == pytest.approx(-1.2, abs=0.1)
    assert mean[1] == pytest.approx(-2.2, abs=0.1)
    assert variance[2] > 1.5 * variance[0]
    assert variance[1] == pytest.approx(variance[0])


def test_unfinished_trials_tell_of_the_steps_that_they_took() -> None:
    without = fit_curves(np.array([[-1.0, -1.2, -1.3]]), at([0]), RUNGS)
    errors = np.vstack([[-1.0, -1.2, -1.3], np.tile([-1.0, -2.0, NAN], (30, 1))])
    with_them = fit_curves(errors, np.zeros(31, np.int64), RUNGS)
    assert with_them.levels[0, 0] < without.levels[0, 0] - 0.3
    assert with_them.levels[1, 0] == pytest.approx(without.levels[1, 0])


def test_slopes_stay_in_their_bounds() -> None:
    first = np.linspace(-3, -1, 50)
    for factor, slope in ((5.0, 1.0), (-1.0, 0.3)):
        curves = fit_curves(
            np.column_stack([first, factor * first]), np.zeros(50, np.int64), (1, 2)
        )
        assert curves.slopes.tolist() == [slope, 1.0]


def test_the_order_of_trials_does_not_matter() -> None:
    generator = np.random.default_rng(1)
    errors = np.minimum.accumulate(generator.normal(-1, 0.5, (30, 3)), axis=1)
    errors[::3, 2] = NAN
    families = generator.integers(0, 4, 30)
    order = generator.permutation(30)
    one, other = (
        fit_curves(errors, families, RUNGS),
        fit_curves(errors[order], families[order], RUNGS),
    )
    np.testing.assert_allclose(one.levels, other.levels)
    np.testing.assert_allclose(one.own, other.own)
    np.testing.assert_allclose(one.offsets, other.offsets)
