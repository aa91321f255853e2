"""Which point of a front is worth a look."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.documents.fronts import ObjectiveInfo
from search.fronts.noise import Noise, noise_of
from search.fronts.recommendation import Candidate, recommend
from search.studies.configurations import over_seeds
from search.studies.spec import StudySpec
from search.tasks.images.digits import Digits

QUALITY = ObjectiveInfo(name="quality", metric="accuracy", direction="maximize", unit="images")
LOSS = ObjectiveInfo(name="quality", metric="loss", direction="minimize", unit="nats")
PARAMETERS = ObjectiveInfo(
    name="parameters", metric="parameters", direction="minimize", unit="numbers"
)
INFOS = (QUALITY, PARAMETERS)


def test_the_smallest_within_noise_of_the_best_is_told_in_words() -> None:
    """The design's own example: 0.955 with 1,386 parameters, against 0.9625 of 400 samples."""
    points = [
        Candidate(3, 0.9625, 12_000),
        Candidate(18, 0.955, 1386),
        Candidate(7, 0.93, 900),
        Candidate(9, 0.7, 100),
    ]
    found = recommend(points, INFOS, noise=Noise(400))
    assert found is not None
    within = found.smallest_within_noise
    assert within is not None
    assert (found.trial, within.trial, found.best) == (18, 18, 3)
    assert within.words == (
        "Smallest within noise of the best: trial 18, 1,386 parameters, accuracy 0.955 against "
        "0.9625 of trial 3 with 12,000 parameters."
    )
    assert found.within_loss is not None
    assert found.within_loss.trial == 18
    assert "400 validation samples; the same data choose and judge." in found.words
    assert "as good" not in found.words
    assert recommend(points, INFOS, noise=Noise(400), max_quality_loss=0.05).within_loss.trial == 7  # pyright: ignore[reportOptionalMemberAccess]


def test_where_no_noise_is_known_the_knee_comes_first() -> None:
    points = [Candidate(n, q, 10.0**n) for n, q in ((1, 0.5), (2, 0.9), (3, 0.92), (4, 0.93))]
    found = recommend(points, INFOS, noise=None)
    assert found is not None
    assert found.smallest_within_noise is None
    assert found.knee is not None
    assert found.trial == found.knee.trial == 2
    assert "The noise of accuracy is not known" in found.words
    three = recommend(points[:3], INFOS, noise=None)
    assert three is not None
    assert three.knee is None, "a knee takes four points"


def test_of_a_loss_less_is_better() -> None:
    points = [Candidate(0, 2.0, 100), Candidate(1, 1.995, 90), Candidate(2, 3.0, 10)]
    found = recommend(points, (LOSS, PARAMETERS), noise=None)
    assert found is not None
    assert (found.best, found.trial) == (1, 1)
    assert found.words.startswith("Smallest that loses at most 0.01: trial 1, 90 parameters")


def test_ties_go_to_the_smaller_and_then_to_the_lower_number() -> None:
    points = [Candidate(4, 0.9, 50), Candidate(2, 0.9, 50), Candidate(1, 0.9, 60)]
    found = recommend(points, INFOS, noise=Noise(100))
    assert found is not None
    assert (found.best, found.trial) == (2, 2)


def test_a_front_without_quality_or_without_points_recommends_nothing() -> None:
    assert recommend([], INFOS, noise=None) is None
    assert recommend([Candidate(0, math.nan, 5)], INFOS, noise=None) is None
    assert recommend([Candidate(0, 0.5, 5)], (PARAMETERS,), noise=None) is None
    assert recommend([Candidate(0, 0.5, 5)], (QUALITY,), noise=None) is None


@given(
    st.lists(st.tuples(st.floats(0, 1), st.integers(1, 10**9)), min_size=1, max_size=20),
    st.integers(1, 10**6),
)
def test_whatever_the_points_are_rules_name_points_that_are_no_larger_than_the_best(
    values: list[tuple[float, int]], samples: int
) -> None:
    points = [Candidate(n, q, float(p)) for n, (q, p) in enumerate(values)]
    found = recommend(points, INFOS, noise=Noise(samples))
    assert found is not None
    sizes = {point.trial: point.cost for point in points}
    for choice in (found.smallest_within_noise, found.within_loss):
        assert choice is not None
        assert sizes[choice.trial] <= sizes[found.best]


def test_the_number_of_samples_is_that_of_the_task() -> None:
    noise = noise_of(Digits())
    assert noise is not None
    assert noise == Noise(400)
    assert noise.half_width(0.95) == pytest.approx(0.021, abs=5e-4)
    assert noise_of(StudySpec.model_validate({"task": {"kind": "copy"}}).task) is None


def test_seeds_that_differ_a_little_do_not_make_everything_noise() -> None:
    """Two seeds have an interval of 12.7 standard errors to either side, which is no noise."""
    pairs = {0: (0.82, 0.81), 1: (0.90, 0.89), 2: (0.95, 0.935)}
    points = [
        Candidate(trial, seeds.mean, 10.0 ** (trial + 2), seeds.standard_error)
        for trial, pair in pairs.items()
        for seeds in [over_seeds(pair)]
    ]
    found = recommend(points, INFOS, noise=Noise(10_000))
    assert found is not None
    assert found.smallest_within_noise is not None
    assert found.smallest_within_noise.trial == 2


def test_a_mean_of_seeds_is_no_surer_than_the_samples_that_judge_it() -> None:
    alike = over_seeds((0.9, 0.9))
    assert alike.standard_error == 0
    assert Noise(400).variance(0.9, alike.standard_error) == Noise(400).variance(0.9)
    apart = over_seeds((0.8, 1.0))
    assert apart.standard_error == pytest.approx(0.1)
    assert Noise(400).variance(0.9, apart.standard_error) == pytest.approx(0.01)


def test_a_mean_is_said_to_be_one_and_which_points_are_looked_at() -> None:
    points = [Candidate(0, 0.9, 100.0), Candidate(1, 0.95, 200.0, 0.01, 3)]
    found = recommend(points, INFOS, noise=None, among="Of the 5 points, 2 lie in the region.")
    assert found is not None
    assert "0.95, the mean of 3 seeds, the best" in found.words
    assert "Of the 5 points, 2 lie in the region." in found.words
