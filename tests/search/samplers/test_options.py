"""What options are worth: by quadrature, against each other, and as trials run."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from search.samplers.modelling.acquisition import Front
from search.samplers.modelling.gaussian_process import matern
from search.samplers.pausing import options
from search.samplers.pausing.final_errors import FinalErrors, Kernel, Look, fit_scales
from search.samplers.pausing.option_index import Gains, Options
from search.samplers.pausing.options import Begun, Fresh, SearchOptions, Standing

RUNGS = (1, 2, 4, 8)
BASELINE = math.log(0.9)


def made(count: int, *, seed: int = 0, finished: float = 0.2, rungs: int = len(RUNGS)) -> Begun:
    """Trials with curves that fall with size; the first are finished, others paused."""
    generator = np.random.default_rng(seed)
    features = generator.random((count, 4))
    costs = features[:, :2] * 3
    falls = np.arange(rungs) * 0.4 * generator.normal(1, 0.1, (count, 1))
    start = BASELINE - 0.2 - 0.6 * features[:, :1] - 0.3 * np.abs(features[:, 2:3] - 0.5)
    errors = start - falls
    last = np.where(
        np.arange(count) < finished * count, rungs - 1, generator.integers(0, rungs - 1, count)
    )
    errors[np.arange(rungs) > last[:, None]] = np.nan
    standing = np.where(last == rungs - 1, int(Standing.FINISHED), int(Standing.PAUSED))
    return Begun(
        features=features,
        costs=costs,
        families=generator.integers(0, 3, count),
        errors=errors,
        standing=standing,
        until=np.full(count, -1),
        price=np.ones(count),
        chance=np.ones(count),
        prior=np.zeros(count),
    )


def offered(count: int, *, seed: int = 1) -> Fresh:
    generator = np.random.default_rng(seed)
    features = generator.random((count, 4))
    return Fresh(
        features=features,
        costs=features[:, :2] * 3,
        families=generator.integers(0, 3, count),
        price=np.ones(count),
        chance=np.ones(count),
        prior=np.zeros(count),
    )


def looked(begun: Begun, *, error: float = BASELINE, seed: int = 0) -> SearchOptions:
    return SearchOptions(
        begun,
        rungs=RUNGS,
        reference_error=error,
        reference_costs=np.full(2, 3.05),
        baseline_error=BASELINE,
        random=np.random.default_rng(seed),
    )


def running(begun: Begun, which: int, until: int) -> Begun:
    standing, ends = begun.standing.copy(), begun.until.copy()
    standing[which], ends[which] = Standing.RUNNING, until
    return replace(begun, standing=standing, until=ends)


def some(fresh: Fresh, which: np.ndarray) -> Fresh:
    return Fresh(**{name: values[which] for name, values in vars(fresh).items()})


def permuted(begun: Begun, order: np.ndarray) -> Begun:
    return Begun(**{name: values[order] for name, values in vars(begun).items()})


def test_the_index_is_the_best_ratio_of_gain_to_price() -> None:
    """One cost axis of one cell, where the gain is a put; by quadrature over what is learned."""
    gains = Gains(
        [
            (
                1.0,
                Front(
                    np.empty((0, 1)),
                    np.empty(0),
                    reference_error=-0.5,
                    reference_costs=np.array([2.0]),
                ),
            )
        ],
        np.ones((1, 1)),
    )
    mean, variance, left, step, rest = -0.4, 0.3, 0.1, 2.0, 5.0
    one = np.ones(1)
    found = gains.index(
        Options(
            mean=mean * one,
            variance=variance * one,
            left=left * one,
            step=step * one,
            rest=rest * one,
            chance=0.5 * one,
        )
    )
    at = mean + math.sqrt(variance - left) * norm.ppf((np.arange(4000) + 0.5) / 4000)

    def put(m: np.ndarray, s: float) -> np.ndarray:
        d = (-0.5 - m) / s
        return np.exp(-0.5) * norm.cdf(d) - np.exp(m + s * s / 2) * norm.cdf(d - s)

    worth = put(at, math.sqrt(left))
    prices = np.linspace(0.001, 0.2, 4000)
    profits = [np.mean(np.maximum(worth - price * rest, 0)) - price * step for price in prices]
    even = prices[np.flatnonzero(np.array(profits) > 0)[-1]]
    straight = put(np.array([mean]), math.sqrt(variance))[0] / (step + rest)
    assert even > straight
    assert found[0] == pytest.approx(0.5 * even, rel=0.1)


def test_without_a_rest_the_index_is_the_expected_gain_per_price() -> None:
    gains = Gains(
        [
            (
                1.0,
                Front(
                    np.empty((0, 1)),
                    np.empty(0),
                    reference_error=0.0,
                    reference_costs=np.array([2.0]),
                ),
            )
        ],
        np.ones((1, 1)),
    )
    one = np.ones(1)
    found = gains.index(
        Options(
            mean=-one,
            variance=1e-12 * one,
            left=0 * one,
            step=4 * one,
            rest=0 * one,
            chance=one,
        )
    )
    assert found[0] == pytest.approx((1 - math.exp(-1)) / 4, rel=1e-4)


def test_trials_own_ends_are_the_conditional_of_a_joint_normal() -> None:
    generator = np.random.default_rng(0)
    features, values = generator.random((12, 3)), generator.normal(size=12)
    noise = np.diag(np.where(np.arange(12) < 4, 0.0, generator.random(12)))
    noise[6:, 6:] += 0.3
    kernel = Kernel(np.zeros(3, np.int64))
    scales = fit_scales(kernel, features, values, noise, usual=-1.0)
    process = FinalErrors(kernel, scales, features, values, noise, usual=-1.0)
    fresh = generator.random((5, 3))
    everything = np.vstack([features, fresh])
    joint = scales.signal**2 * matern(everything, everything, length=scales.lengths[0]) + 1.0
    joint += scales.own**2 * np.eye(17)
    gain = joint[:, :12] @ np.linalg.inv(joint[:12, :12] + noise)
    mean, covariance = -1 + gain @ (values + 1), joint - gain @ joint[:12]
    ends = process.of_trials(np.arange(12))
    np.testing.assert_allclose(ends[0], mean[:12], atol=1e-7)
    np.testing.assert_allclose(ends[1], covariance[:12, :12], atol=1e-7)
    nowhere, none = np.full(5, -1), Look(noise=np.ones(5), shared=np.zeros((5, 12)))
    prior = process.prior_with(fresh)
    [seen] = process.looked_at(prior, [none], nowhere)
    np.testing.assert_allclose(process.means(prior, none, nowhere)[0], mean[12:], atol=1e-7)
    np.testing.assert_allclose(seen.variance, np.diag(covariance)[12:], atol=1e-7)
    # A trial without its own observation, and with it again, which errs with that of others.
    look = Look(noise=noise[[7], 7], shared=noise[[7]])
    seven = np.array([7])
    prior = process.prior_with(features[seven])
    [seen] = process.looked_at(prior, [look], seven)
    final, observed = process.means(prior, look, seven)
    silent = noise.copy()
    silent[7, :] = silent[:, 7] = 0.0
    silent[7, 7] = 1e7
    left_out = process.with_noise(silent)
    assert final[0] == pytest.approx(left_out.of_trials(seven)[0][0], abs=1e-5)
    assert seen.variance[0] == pytest.approx(left_out.of_trials(seven)[1][0, 0], rel=1e-4)
    news = values[[7]] - observed
    assert (final + seen.weight * news)[0] == pytest.approx(mean[7], abs=1e-7)
    assert seen.left[0] == pytest.approx(covariance[7, 7], abs=1e-7)


def test_thresholds_agree_with_the_index_of_a_trial_at_that_error() -> None:
    # The trial in question is the last of a search that knows its curves.
    begun = running(made(80), 79, 1)
    begun.errors[79, 1:] = np.nan
    index = looked(begun).of_begun()
    level = float(np.nanquantile(index, 0.8))
    thresholds = looked(begun).go_on_below(79, level)
    assert np.isnan(thresholds[[0, 3]]).all()
    for rung in (1, 2):
        assert np.isfinite(thresholds[rung])
        for away, is_worth in ((-0.1, True), (0.1, False)):
            errors, standing = begun.errors.copy(), begun.standing.copy()
            errors[79, 1 : rung + 1] = thresholds[rung] + away
            standing[79] = Standing.PAUSED
            then = looked(replace(begun, errors=errors, standing=standing)).of_begun()
            assert (then[79] >= level) == is_worth


def test_thresholds_are_open_where_nothing_or_everything_is_worth_it() -> None:
    begun = running(made(30), 29, 0)
    begun.errors[29] = np.nan
    one = looked(begun)
    assert one.go_on_below(29, 0.0)[:3].tolist() == [math.inf] * 3
    assert one.go_on_below(29, 1e9)[:3].tolist() == [-math.inf] * 3
    higher, lower = one.go_on_below(29, 0.01), one.go_on_below(29, 0.05)
    assert np.all(lower[:3] <= higher[:3])


def test_running_trials_lower_the_index_of_their_neighbours() -> None:
    begun, fresh = made(30), offered(40)
    best = some(fresh, np.argsort(-looked(begun).of_fresh(fresh))[:1])
    with_it = Begun(
        features=np.vstack([begun.features, best.features]),
        costs=np.vstack([begun.costs, best.costs]),
        families=np.append(begun.families, best.families),
        errors=np.vstack([begun.errors, np.full((1, 4), np.nan)]),
        standing=np.append(begun.standing, Standing.RUNNING),
        until=np.append(begun.until, 0),
        price=np.ones(31),
        chance=np.ones(31),
        prior=np.zeros(31),
    )
    waiting = replace(
        with_it, standing=np.append(begun.standing, Standing.WAITING), until=begun.until[[0] * 31]
    )
    before, after = looked(waiting).of_fresh(best)[0], looked(with_it).of_fresh(best)[0]
    assert before == pytest.approx(looked(begun).of_fresh(best)[0], rel=1e-6)
    assert after < 0.7 * before
    assert looked(waiting).of_begun()[30] == pytest.approx(before, rel=1e-6)
    assert np.isnan(looked(with_it).of_begun()[30])


def test_the_order_of_trials_does_not_matter_and_draws_follow_the_generator() -> None:
    begun = running(running(made(40), 39, 2), 30, 3)
    begun.errors[39, 2:] = begun.errors[30, 2:] = np.nan
    fresh = offered(20)
    order = np.random.default_rng(5).permutation(40)
    one, again, other = looked(begun), looked(begun), looked(permuted(begun, order))
    assert one.of_fresh(fresh).tolist() == again.of_fresh(fresh).tolist()
    np.testing.assert_allclose(other.of_fresh(fresh), one.of_fresh(fresh), rtol=1e-6)
    np.testing.assert_allclose(other.of_begun(), one.of_begun()[order], rtol=1e-6)
    assert looked(begun, seed=1).of_fresh(fresh).tolist() != one.of_fresh(fresh).tolist()


def test_prices_and_chances_scale() -> None:
    begun, fresh = made(40), offered(20)
    index = looked(begun).of_fresh(fresh)
    dear = looked(replace(begun, price=3 * begun.price))
    np.testing.assert_allclose(dear.of_fresh(replace(fresh, price=3 * fresh.price)), index / 3)
    np.testing.assert_allclose(dear.of_begun(), looked(begun).of_begun() / 3)
    rare = looked(begun).of_fresh(replace(fresh, chance=0.25 * fresh.chance))
    np.testing.assert_allclose(rare, index / 4)


def test_a_prior_moves_what_is_expected() -> None:
    begun, fresh = made(40), offered(20)
    likely = replace(fresh, prior=np.full(20, -0.5))
    assert np.all(looked(begun).of_fresh(likely) > looked(begun).of_fresh(fresh))
    # Where all have the same it says nothing.
    same = looked(replace(begun, prior=np.full(40, -0.5)))
    np.testing.assert_allclose(same.of_fresh(likely), looked(begun).of_fresh(fresh), rtol=1e-6)


def test_outside_the_region_of_interest_gains_count_from_the_baseline() -> None:
    begun, fresh = made(40), offered(20)
    far = looked(begun, error=-40.0)
    assert np.argmax(far.of_fresh(fresh)) == np.argmax(looked(begun).of_fresh(fresh))
    assert 0 < far.of_fresh(fresh).max() < 1e-5


def test_five_thousand_trials_fit_few_rows_and_those_near_the_front(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(options, "MOST_FITTED", 60)
    begun = made(5000, finished=0.01)
    over = np.where(
        (begun.standing == Standing.PAUSED) & (np.arange(5000) < 4980),
        int(Standing.OVER),
        begun.standing,
    )
    rows: list[np.ndarray] = []
    whole = FinalErrors.__init__

    def noted(self: FinalErrors, *arguments: object, **named: object) -> None:
        rows.append(arguments[2])  # pyright: ignore[reportArgumentType]
        whole(self, *arguments, **named)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(FinalErrors, "__init__", noted)
    one = looked(replace(begun, standing=over))
    index = one.of_begun()
    assert np.isfinite(index[4980:]).all()
    assert max(map(len, rows)) == 60
    paused = begun.features[4980:]
    assert all(np.any(np.all(rows[0] == row, axis=1)) for row in paused)


def test_nothing_is_ever_nan() -> None:
    """No trial at all, one, equal ones, failed ones, without costs, and only running ones."""
    nothing = made(0)
    fresh = offered(5)
    equal = permuted(made(10, finished=0.0), np.zeros(10, np.int64))
    failed = made(10, finished=0.0)
    failed = replace(
        failed,
        errors=np.full((10, 4), BASELINE),
        standing=np.full(10, int(Standing.OVER)),
    )
    blind = running(running(made(2, finished=0.0), 0, 0), 1, 0)
    blind = replace(blind, errors=np.full((2, 4), np.nan))
    for begun in (nothing, made(1), equal, failed, blind, made(30)):
        one = looked(begun)
        assert np.isfinite(one.of_fresh(fresh)).all()
        options = np.isin(begun.standing, (Standing.PAUSED, Standing.WAITING))
        assert np.array_equal(np.isfinite(one.of_begun()), options)
        for which in np.flatnonzero(begun.standing == Standing.RUNNING):
            assert not np.isnan(one.go_on_below(int(which), 0.01)[:-1]).any()
    plain = replace(made(20), costs=np.empty((20, 0)))
    free = SearchOptions(
        plain,
        rungs=RUNGS,
        reference_error=BASELINE,
        reference_costs=np.empty(0),
        baseline_error=BASELINE,
        random=np.random.default_rng(0),
        groups=(0, 0, 1, 1),
    )
    assert np.isfinite(free.of_fresh(replace(fresh, costs=np.empty((5, 0))))).all()
