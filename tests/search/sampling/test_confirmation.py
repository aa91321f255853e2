"""What a configuration reaches over its seeds, and points of the front that are confirmed."""

import math
import statistics
from collections.abc import Generator
from dataclasses import replace
from typing import Any

import pytest
import scipy.stats

from search.fronts.dominance import front_of
from search.fronts.pareto import objective_infos
from search.student import student_quantile
from search.studies.configurations import Qualities, over_seeds, seeded
from search.studies.spec import StudySpec
from storage.records import TrialOrigin, TrialRecord, TrialState
from storage.repositories.trials import Trials
from tests.search.coordinating import Site, break_off, finish
from tests.storage.records import trial as trial_record

SPEC: dict[str, Any] = {
    "task": {"kind": "digits"},
    "architectures": ["rnn"],
    "parametrizations": ["dense"],
    "space": {"hidden_size": {"low": 6, "high": 12}},
    "objectives": ["quality", "parameters"],
    "budget": {"trials": 3, "epochs": 1},
    "sampler": {"kind": "random"},
    "confirm": 2,
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Generator[Site]:
    made = Site(tmp_path_factory.mktemp("site"))
    yield made
    made.close()


def ended(number: int, quality: float, *, seed: int, size: int = 4, **fields: Any) -> TrialRecord:
    spec: dict[str, Any] = {"model": {"hidden_size": size}, "training": {}, "seed": seed}
    record = trial_record("s", number, state=TrialState.COMPLETE, quality=quality, spec=spec)
    return replace(record, parameters=size, **fields)


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 8, 13, 20, 41])
def test_the_quantile_is_that_of_students_t(freedom: int) -> None:
    assert student_quantile(freedom) == pytest.approx(scipy.stats.t.ppf(0.975, freedom), rel=1e-12)


def test_the_interval_is_the_one_of_a_t_test() -> None:
    qualities = [0.91, 0.94, 0.90, 0.97]
    found = over_seeds(qualities)
    error = statistics.stdev(qualities) / math.sqrt(4)
    expected = scipy.stats.t.interval(0.95, 3, loc=statistics.fmean(qualities), scale=error)
    assert found.seeds == 4
    assert found.interval == pytest.approx(expected)
    assert over_seeds([0.5]).interval is None


def test_a_seed_counts_once_and_continued_trials_do_not_count() -> None:
    trials = [
        ended(0, 0.8, seed=0),
        ended(1, 0.8, seed=0, repeats=0),
        ended(2, 0.6, seed=9, repeats=0),
        ended(3, 0.7, seed=5, repeats=0, origin=TrialOrigin.CONFIRMATION),
        ended(4, 0.99, seed=0, continues=0),
        ended(5, 0.5, seed=0, size=8),
    ]
    qualities = Qualities(trials, {trial.number: seeded(trial.spec) for trial in trials})
    found = [qualities.of(trial) for trial in trials]
    assert [over and (over.seeds, over.mean) for over in found] == [
        *[(3, pytest.approx(0.7))] * 4,
        None,
        (1, 0.5),
    ]
    assert [qualities.mean(trial) for trial in trials[3:]] == [pytest.approx(0.7), 0.99, 0.5]


def test_confirmations_are_on_no_front() -> None:
    infos = objective_infos(StudySpec.model_validate(SPEC).task, ["quality", "parameters"])
    trials = [
        ended(0, 0.8, seed=0),
        ended(1, 0.9, seed=3, repeats=0, origin=TrialOrigin.CONFIRMATION),
    ]
    assert [trial.number for trial in front_of(trials, infos)] == [0]


@pytest.mark.parametrize(
    ("point", "number"),
    [
        pytest.param("asked", 4, marks=pytest.mark.slow),
        ("given", 3),
        pytest.param("ended", 4, marks=pytest.mark.slow),
    ],
)
def test_confirmations_survive_the_coordinator(site: Site, point: str, number: int) -> None:
    study_id = site.http.post("/v1/studies", json=SPEC).json()["id"]
    break_off(site, point, number)
    finish(site, study_id)
    infos = objective_infos(StudySpec.model_validate(SPEC).task, ["quality", "parameters"])
    with site.database.read() as session:
        trials = Trials(session).list(study_id)
    front = [trial.number for trial in front_of(trials, infos)]
    assert [trial.number for trial in trials] == list(range(3 + 2 * len(front)))
    assert {trial.state for trial in trials} == {TrialState.COMPLETE}
    assert {trial.origin for trial in trials[:3]} == {TrialOrigin.SAMPLER}
    assert {trial.origin for trial in trials[3:]} == {TrialOrigin.CONFIRMATION}
    assert [trial.repeats for trial in trials[3:]] == front * 2
    assert len({str(trial.spec["seed"]) for trial in trials[3:]}) == 2 * len(front)
    for trial in trials[3:]:
        assert trial.repeats is not None
        assert trial.drawn == trials[trial.repeats].drawn
        assert all(trial.spec[part] == trials[trial.repeats].spec[part] for part in _DOCUMENTS)


_DOCUMENTS = ("model", "training")
