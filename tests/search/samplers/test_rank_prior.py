"""How much the ranks of another task tell: learned from the study's own trials."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm, rankdata

from search.samplers import RankedTrials, ranks_of
from search.samplers.modelling.encoding import Encoding, values_of_trial
from search.samplers.modelling.gaussian_process import Array, GaussianProcess, fit
from search.samplers.modelling.sampler_cache import SamplerCache
from search.samplers.pausing import rank_prior
from search.samplers.pausing.options import Begun, Standing
from search.samplers.pausing.rank_prior import MOST_FITTED, RankScores, rank_weights
from storage.records import TrialRecord
from tests.search.samplers.test_samplers import Played

RUNGS = (1, 2, 4, 8)
SLOPE = 0.5


def made(count: int, *, told: float, seed: int = 0) -> tuple[Begun, Array]:
    """Trials whose ends follow scores and something else, and the scores `[N, 1]`.

    `told`: the share of the variance of ends that the scores tell.
    """
    generator = np.random.default_rng(seed)
    features = generator.random((count, 5))
    scores = norm.ppf(features[:, 0].clip(0.02, 0.98))
    others = norm.ppf(features[:, 1].clip(0.02, 0.98))
    ends = -2 + SLOPE * (math.sqrt(told) * scores + math.sqrt(1 - told) * others)
    errors = ends[:, None] + 0.4 * np.arange(len(RUNGS))[::-1]
    last = generator.integers(0, len(RUNGS), count)
    errors[np.arange(len(RUNGS)) > last[:, None]] = np.nan
    begun = Begun(
        features=features,
        costs=features[:, :2],
        families=np.zeros(count, np.int64),
        errors=errors,
        standing=np.where(last == 3, int(Standing.FINISHED), int(Standing.PAUSED)),
        until=np.full(count, -1),
        price=np.ones(count),
        chance=np.ones(count),
        prior=np.zeros(count),
    )
    return begun, scores[:, None]


def shuffled(scores: Array, seed: int) -> Array:
    return np.random.default_rng(seed).permutation(scores)


def weight(begun: Begun, scores: Array) -> float:
    return float(rank_weights(begun, scores, rungs=RUNGS)[0])


def test_ranks_are_shares_in_which_equal_ones_are_equal() -> None:
    errors = [0.3, 0.1, 0.3, 0.9, 0.2]
    expected = (rankdata(errors) - 0.5) / len(errors)
    assert ranks_of(errors) == pytest.approx(expected.tolist())
    assert ranks_of([7.0]) == [0.5]
    assert ranks_of([]) == []


def test_half_of_a_source_is_believed_before_any_trial_tells_of_it() -> None:
    begun, scores = made(12, told=1.0)
    unseen = replace(begun, errors=np.full_like(begun.errors, np.nan))
    before = weight(unseen, scores)
    assert 0.2 < before < 0.5
    # Of two sources half of that each; of no trial as much.
    both = rank_weights(unseen, np.hstack([scores, -scores]), rungs=RUNGS)
    assert both.tolist() == pytest.approx([before / 2, before / 2])
    none = Begun(**{name: values[:0] for name, values in vars(begun).items()})
    assert weight(none, scores[:0]) == pytest.approx(before)


@pytest.mark.parametrize("told", [1.0, 0.6])
def test_what_a_useful_source_tells_is_believed(told: float) -> None:
    begun, scores = made(40, told=told)
    assert weight(begun, scores) == pytest.approx(SLOPE * math.sqrt(told), abs=0.1)


@pytest.mark.parametrize("seed", range(4))
def test_a_useless_source_comes_to_weigh_nothing(seed: int) -> None:
    begun, scores = made(60, told=1.0)
    assert abs(weight(begun, shuffled(scores, seed))) < 0.08
    assert weight(begun, -scores) < 0.01


def test_of_several_sources_the_one_counts_that_tells_something() -> None:
    begun, scores = made(40, told=0.8)
    sources = np.hstack([shuffled(scores, 1), scores, shuffled(scores, 2)])
    weights = rank_weights(begun, sources, rungs=RUNGS)
    assert weights[1] == pytest.approx(weight(begun, scores), abs=0.02)
    assert np.abs(weights[[0, 2]]).max() < 0.02


def test_trials_that_failed_at_once_say_nothing_of_a_source() -> None:
    begun, scores = made(40, told=1.0)
    errors, standing = begun.errors.copy(), begun.standing.copy()
    errors[:5], standing[:5] = 0.0, Standing.OVER
    failed = replace(begun, errors=errors, standing=standing)
    others = Begun(**{name: values[5:] for name, values in vars(begun).items()})
    assert weight(failed, scores) == pytest.approx(weight(others, scores[5:]))


def played(count: int) -> tuple[Encoding, Sequence[TrialRecord]]:
    study = Played({"kind": "random"})
    study.play(count)
    numbered = [replace(trial, number=trial.number - count) for trial in study.trials]
    return Encoding(study.space.dimensions), numbered


def rows(encoding: Encoding, trials: Sequence[TrialRecord]) -> Array:
    return encoding.rows(map(values_of_trial, trials))


def source_of(trials: Sequence[TrialRecord]) -> RankedTrials:
    """As if the smaller a model is, the better."""
    sizes = [float(trial.dense_parameters) for trial in trials]
    return RankedTrials(trials=trials, ranks=ranks_of(sizes))


def test_scores_follow_the_ranks_of_the_source() -> None:
    encoding, trials = played(40)
    scores = RankScores(encoding, [source_of(trials[:30])], SamplerCache())
    found = scores.of(rows(encoding, trials[30:]))[:, 0]
    sizes = [trial.dense_parameters for trial in trials[30:]]
    assert np.corrcoef(rankdata(found), rankdata(sizes))[0, 1] > 0.9


def test_only_dimensions_that_vary_in_the_source_tell_something() -> None:
    encoding, trials = played(40)
    name = "training.learning_rate"

    def at(rate: float, trial: TrialRecord) -> TrialRecord:
        return replace(trial, hyperparameters={**trial.hyperparameters, name: rate})

    pinned = [at(0.003, trial) for trial in trials]
    scores = RankScores(encoding, [source_of(pinned)], SamplerCache())
    both = rows(encoding, [at(rate, trials[0]) for rate in (0.003, 0.01)])
    assert both[0].tolist() != both[1].tolist()
    assert len(set(scores.of(both)[:, 0].tolist())) == 1
    # Counts do not compare.
    counted = rows(encoding, [trials[0], replace(trials[0], parameters=10**6)])
    assert len(set(scores.of(counted)[:, 0].tolist())) == 1
    # Where nothing varies, no configuration is better than another.
    same = [replace(trials[0], number=-n) for n in (2, 1)]
    scores = RankScores(encoding, [source_of(same)], SamplerCache())
    assert scores.of(rows(encoding, trials)).tolist() == [[0.0]] * len(trials)


def test_a_source_is_fitted_once_to_some_hundred_trials_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encoding, trials = played(2 * MOST_FITTED + 1)
    fitted: list[int] = []

    def counted(features: Array, values: Array, weights: Array) -> GaussianProcess:
        fitted.append(len(values))
        return fit(features, values, weights)

    monkeypatch.setattr(rank_prior, "fit", counted)
    cache, source = SamplerCache(), source_of(trials)
    some = rows(encoding, trials[:9])
    one, two = (RankScores(encoding, [source], cache).of(some) for _ in range(2))
    assert one.tolist() == two.tolist()
    assert fitted == [134]
    assert fitted[0] <= MOST_FITTED
