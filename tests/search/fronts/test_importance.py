"""The importance of dimensions: what made trials good is found, and nothing is made up."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from search.fronts.importance import (
    LEAST_TRIALS,
    DimensionImportance,
    Importances,
    ObjectiveImportance,
)
from search.samplers.modelling.configurations_drawn import RandomSource
from search.spaces.dimension import Scalar
from search.spaces.model_space import DrawnTrial
from search.spaces.space import SearchSpace
from search.studies.spec import StudySpec
from storage.records import StudyRecord, TrialOrigin, TrialState
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials
from tests.service.site import Site
from tests.storage.records import trial

FIELDS: dict[str, Any] = {
    "architectures": ["rnn"],
    "parametrizations": ["dense", "low_rank"],
    "space": {"hidden_size": {"low": 8, "high": 64}},
    "objectives": ["quality", "parameters"],
}
Drawn = dict[str, Scalar]
Values = Callable[[Drawn], dict[str, Any]]


def fill(site: Site, count: int, values: Values, **fields: Any) -> StudyRecord:
    """A study of so many complete trials, drawn at random and with values that follow from them."""
    study = site.study(**{**FIELDS, **fields})
    space = SearchSpace(StudySpec.model_validate(study.spec))
    generator = np.random.default_rng(count)
    drawn: list[DrawnTrial] = [space.draw(RandomSource(generator)) for _ in range(count)]
    with site.database.write() as session:
        for number, found in enumerate(drawn):
            record = trial(
                study.id,
                number,
                drawn=dict(found.drawn),
                parameters=found.spec.model.parameter_count(),
                state=TrialState.COMPLETE,
                finished_at=datetime.now(UTC),
            )
            Trials(session).add(replace(record, **values(found.drawn)))
    return study


def of(site: Site, study: StudyRecord) -> dict[str, ObjectiveImportance]:
    with site.database.read() as session:
        return {one.objective.name: one for one in Importances().of(session, study).objectives}


def by_name(found: ObjectiveImportance) -> dict[str, DimensionImportance]:
    return {one.dimension: one for one in found.dimensions}


def test_the_dimension_that_decides_is_the_most_important_one(site: Site) -> None:
    study = fill(site, 60, lambda drawn: {"quality": float(drawn["training.learning_rate"])})
    found = of(site, study)
    quality, parameters = (found[name].dimensions for name in ("quality", "parameters"))
    assert quality[0].dimension == "training.learning_rate"
    assert quality[0].importance > 0.5
    assert quality[0].trend == pytest.approx(1.0)
    assert parameters[0].dimension in ("rnn.hidden_size", "parametrization", "low_rank.d")
    for one in found.values():
        assert sum(dimension.importance for dimension in one.dimensions) == pytest.approx(1.0)
        assert one.reason is None


def test_a_dimension_that_some_trials_do_not_have_is_judged_by_those_that_do(site: Site) -> None:
    def values(drawn: Drawn) -> dict[str, Any]:
        return {"quality": 1 / float(drawn.get("low_rank.d", 1000))}

    study = fill(site, 80, values)
    rank = by_name(of(site, study)["quality"])["low_rank.d"]
    assert 0 < rank.trials < 80
    assert rank.trend == pytest.approx(-1.0)
    assert rank.importance > 0.2


def test_a_trend_is_the_rank_correlation_with_ties(site: Site) -> None:
    def values(drawn: Drawn) -> dict[str, Any]:
        return {"quality": round(float(drawn["rnn.hidden_size"]) / 20)}

    study = fill(site, 40, values)
    with site.database.read() as session:
        trials = Trials(session).list(study.id)
    sizes = [trial.drawn["rnn.hidden_size"] for trial in trials]
    expected = spearmanr(sizes, [trial.quality for trial in trials])[0]  # pyright: ignore
    found = by_name(of(site, study)["quality"])["rnn.hidden_size"]
    assert found.trend == pytest.approx(expected)


def test_a_choice_has_the_median_of_each_option(site: Site) -> None:
    study = fill(site, 30, lambda drawn: {"quality": float(drawn["parametrization"] == "dense")})
    choice = by_name(of(site, study)["quality"])["parametrization"]
    assert choice.medians == {"dense": 1.0, "low_rank": 0.0}
    assert choice.trend is None


def test_too_few_trials_and_trials_that_are_all_alike_have_a_reason(site: Site) -> None:
    few = of(site, fill(site, LEAST_TRIALS - 1, lambda drawn: {"quality": len(drawn)}))["quality"]
    assert few.reason == f"{LEAST_TRIALS - 1} trials have a value; it takes {LEAST_TRIALS}"
    assert few.dimensions == ()
    alike = of(site, fill(site, 20, lambda _: {"quality": 0.5}))["quality"]
    assert alike.reason == "too many of the 20 trials have the same value, 0.5"
    none = of(site, site.study())
    assert none["throughput"].reason == f"0 trials have a value; it takes {LEAST_TRIALS}"


def test_confirmations_and_unfinished_qualities_do_not_count(site: Site) -> None:
    def values(drawn: Drawn) -> dict[str, Any]:
        size = int(drawn["rnn.hidden_size"])
        state = TrialState.STOPPED if size % 2 else TrialState.COMPLETE
        origin = TrialOrigin.CONFIRMATION if size % 3 == 0 else TrialOrigin.SAMPLER
        return {"quality": size, "state": state, "origin": origin}

    study = fill(site, 60, values)
    with site.database.read() as session:
        sizes = [
            int(str(trial.drawn["rnn.hidden_size"])) for trial in Trials(session).list(study.id)
        ]
    found = of(site, study)
    assert found["parameters"].trials == sum(size % 3 != 0 for size in sizes)
    assert found["quality"].trials == sum(size % 3 != 0 and size % 2 == 0 for size in sizes)


def test_a_preset_outside_the_space_has_no_dimensions(site: Site) -> None:
    study = fill(site, 30, lambda drawn: {"quality": int(drawn["rnn.hidden_size"])})
    with site.database.write() as session:
        Trials(session).add(trial(study.id, 30, drawn={}, quality=1.0, state=TrialState.COMPLETE))
        Trials(session).add(
            trial(
                study.id,
                31,
                drawn={"rnn.hidden_size": 1000, "gone": 3},
                quality=1.0,
                state=TrialState.COMPLETE,
            )
        )
    found = of(site, study)["quality"]
    assert found.trials == 32
    assert by_name(found)["rnn.hidden_size"].trials == 30


def test_what_was_remembered_says_the_same_as_all_read_anew(site: Site) -> None:
    study = site.study(objectives=["quality", "parameters"], budget={"trials": 99, "epochs": 2})
    remembered = Importances()
    for number in range(30):
        state = TrialState.STOPPED if number % 7 == 3 else TrialState.COMPLETE
        site.trial(study, number, quality=(number * 37 % 30) / 30, state=state)
        if number % 5:
            continue
        with site.database.read() as session:
            now = Studies(session).get(study.id)
            found = remembered.of(session, now)
            assert found == Importances().of(session, now)
            assert found.objectives[1].trials == number + 1
