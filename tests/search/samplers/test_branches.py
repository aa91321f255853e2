"""A sampler per architecture and parametrization, and which of them is asked next."""

from collections import Counter
from dataclasses import replace
from typing import Any

import moocore
import numpy as np
import pytest

from search.errors import SpecRefused
from search.samplers.branches import Allotment, gains, gains_by_number, worth
from search.samplers.modelling.branching import branches_of
from search.samplers.sampler import WholeSampler
from search.sampling.sampler_context import sampler_context_of
from search.spaces.draws import TrialSource
from search.spaces.model_space import DrawnTrial
from search.spaces.space import SearchSpace
from search.studies.spec import StudySpec
from search.studies.submission import checked_space
from storage.records import TrialState
from tests.search.samplers.test_samplers import SPEC, Played

INNER: dict[str, dict[str, Any]] = {
    "tpe": {"startup_trials": 1},
    "random": {},
    "nsga2": {"population": 2},
    "nsga3": {"population": 2},
    "gp": {"startup_trials": 2},
}
TWO: dict[str, Any] = {"objectives": ["quality", "parameters"]}


def sampler(inner: str = "random", **fields: Any) -> dict[str, Any]:
    return {"kind": "branches", "sampler": {"kind": inner, **INNER[inner]}, **fields}


def candidates(drawn: list[DrawnTrial]) -> Counter[str]:
    return Counter(str(one.candidate) for one in drawn)


def rule(startup: int = 1, least_share: float = 0.0) -> Allotment:
    return Allotment(startup=startup, least_share=least_share)


def test_the_branches_are_the_candidates_with_the_names_of_the_one_space() -> None:
    space = SearchSpace(StudySpec.model_validate({**SPEC, "sampler": sampler()}))
    branches = branches_of(space)
    assert [str(branch) for branch in branches] == [str(one) for one in space.candidates]
    assert all(not branch.conditional for branch in branches)
    for branch in branches:
        assert branch.dimensions.keys() | branch.chosen.keys() <= space.dimensions.keys()
        for name, dimension in branch.dimensions.items():
            assert dimension == space.dimensions[name]


@pytest.mark.parametrize("inner", INNER)
def test_every_inner_sampler_searches_every_branch_and_is_the_same_again(inner: str) -> None:
    settings = sampler(inner, startup_trials=2)
    one, two = (Played(settings, **TWO).play(10) for _ in range(2))
    assert [drawn.drawn for drawn in one] == [drawn.drawn for drawn in two]
    assert sorted(candidates(one[:8]).values()) == [2, 2, 2, 2]


def test_a_suggestion_has_all_dimensions_of_its_candidate_by_their_own_names() -> None:
    played = Played(sampler("tpe"), **TWO)
    played.play(12)
    for trial, known in zip(played.trials, played.optuna_study.trials, strict=True):
        assert known.number == trial.number
        assert known.params == trial.drawn


def test_a_branch_that_adds_more_is_asked_more_often() -> None:
    """Dense trials are far better in this study; nothing else tells the branches apart."""
    played = Played(sampler("random"), objectives=["quality"])
    drawn: list[DrawnTrial] = []
    for number in range(40):
        drawn.append(played.space.draw(TrialSource(played.optuna_study.ask())))
        played.end(number, drawn[-1])
        good = drawn[-1].candidate.parametrization == "dense"
        quality = 0.5 + 0.01 * number if good else 0.2
        played.trials[-1] = replace(
            played.trials[-1], state=TrialState.COMPLETE, quality=quality, epochs_trained=9
        )
    found = Counter(one.candidate.parametrization for one in drawn)
    assert found["dense"] > 2 * found["low_rank"]
    # A quarter of 30 % of 40 for each of two branches.
    assert found["low_rank"] >= 6


def test_gains_are_differences_of_hypervolume() -> None:
    random = np.random.default_rng(0)
    # Of few values each: many are equal, and many dominate others.
    costs = random.integers(0, 6, (60, 3)) / 5
    branches = random.integers(0, 3, 60)
    reference = np.full(3, 1.1)
    found = gains(costs, branches, reference)
    for place, branch in enumerate(branches):
        seen = costs[(branches != branch) | (np.arange(60) < place)]
        more = np.concatenate([seen, costs[place : place + 1]])
        before, after = (moocore.hypervolume(one, ref=reference) for one in (seen, more))
        assert found[place] == pytest.approx(after - before, abs=1e-12)
    alone = gains(costs, np.zeros(60, int), reference)
    assert alone.sum() == pytest.approx(moocore.hypervolume(costs, ref=reference))


def test_what_breaks_a_limit_has_added_nothing() -> None:
    played = Played(sampler("random"), objectives=["quality", "parameters"])
    played.play(8)
    context = sampler_context_of(played.spec, played.space, played.past)
    branches = branches_of(played.space)
    best = max(played.trials, key=lambda trial: trial.quality or 0.0).number
    assert best in gains_by_number(context, played.past(), branches)
    played.trials[best] = replace(played.trials[best], violation=0.5)
    assert best not in gains_by_number(context, played.past(), branches)


def test_a_trial_that_is_pinned_to_a_branch_is_searched_within_it() -> None:
    """Trials that train together in one process share a candidate."""
    played = Played(sampler("tpe", startup_trials=1))
    played.play(8)
    pins = {"architecture": "gru", "parametrization": "low_rank", "gru.hidden_size": 16}
    context = sampler_context_of(
        played.spec, played.space, played.past, pins=lambda number: pins if number >= 8 else {}
    )
    for seed in range(8):
        chosen = played.spec.sampler.build_for(context, seed=seed)
        assert isinstance(chosen, WholeSampler)
        values = chosen.values_for(8)
        assert (values["architecture"], values["parametrization"]) == ("gru", "low_rank")
        assert "low_rank.d" in values


def test_an_end_that_optuna_was_not_told_of_changes_no_suggestion() -> None:
    """What is suggested must not depend on who is quicker: the end, or the ask."""
    one, two = (Played(sampler("tpe", startup_trials=1), **TWO) for _ in range(2))
    for played in (one, two):
        played.play(9)
    running = {"state": TrialState.RUNNING, "finished_at": None, "quality": None}
    one.trials[-1] = replace(one.trials[-1], told_at=None)
    two.trials[-1] = replace(two.trials[-1], told_at=None, **running)
    assert [drawn.drawn for drawn in one.play(1)] == [drawn.drawn for drawn in two.play(1)]


def test_gp_is_for_one_candidate_and_up_to_a_number_of_trials() -> None:
    def refusal(**fields: Any) -> str:
        document = {**SPEC, "sampler": {"kind": "gp"}, **fields}
        with pytest.raises(SpecRefused) as refused:
            checked_space(StudySpec.model_validate(document))
        return str(refused.value)

    assert "here are 4 candidates" in refusal()
    flat: dict[str, Any] = {"architectures": ["rnn"], "parametrizations": ["low_rank"]}
    assert "allowed are at most 200" in refusal(**flat, budget={"trials": 201})
    checked_space(StudySpec.model_validate({**SPEC, **flat, "sampler": {"kind": "gp"}}))


def test_gp_learns_of_limits_that_were_broken() -> None:
    """All that is large was refused: what is suggested is small, though the large had promise."""
    flat: dict[str, Any] = {
        "architectures": ["rnn"],
        "parametrizations": ["low_rank"],
        "objectives": ["quality"],
    }
    space = {**SPEC["space"], "hidden_size": {"low": 8, "high": 64, "step": 8}}
    sizes: dict[bool, list[int]] = {}
    for limited in (False, True):
        played = Played({"kind": "gp", "startup_trials": 10}, **flat, space=space)
        for number, drawn in enumerate(played.play(14)):
            size = int(str(drawn.drawn["rnn.hidden_size"]))
            trial = replace(
                played.trials[number],
                state=TrialState.COMPLETE,
                quality=size / 100,
                epochs_trained=9,
            )
            if limited and size > 24:
                trial = replace(
                    trial,
                    state=TrialState.INFEASIBLE,
                    violation=size / 24 - 1,
                    quality=None,
                    dispatched=False,
                )
            played.trials[number] = trial
        asked = (TrialSource(played.optuna_study.ask()) for number in range(14, 20))
        drawn = [played.space.draw(source) for source in asked]
        sizes[limited] = [int(str(one.drawn["rnn.hidden_size"])) for one in drawn]
    assert np.median(sizes[False]) >= 56, sizes
    assert np.median(sizes[True]) <= 32, sizes


def test_nsga3_with_one_objective_is_refused() -> None:
    document = {**SPEC, "sampler": {"kind": "nsga3"}, "objectives": ["quality"]}
    with pytest.raises(SpecRefused, match="two objectives or more; objectives are quality"):
        checked_space(StudySpec.model_validate(document))


def test_the_first_suggestions_and_the_least_share_go_to_the_branch_with_the_fewest() -> None:
    generator = np.random.default_rng(0)
    worths, order = [1.0, 0.0, 0.0], [2, 1, 0]
    assert rule(2).next([1, 0, 0], [0, 0, 0], worths, order, generator) == 2
    # What others know counts as a start, and not in the share.
    assert rule(2).next([2, 1, 0], [0, 0, 5], worths, order, generator) == 1
    assert rule(1, 0.3).next([50, 4, 6], [0, 0, 0], worths, order, generator) == 1
    assert rule(1, 0.3).next([48, 6, 6], [0, 0, 0], worths, order, generator) == 0


def test_branches_are_as_likely_as_their_worth() -> None:
    generator = np.random.default_rng(0)
    chosen = Counter(
        rule().next([5, 5, 5], [0, 0, 0], [3.0, 1.0, 0.0], [0, 1, 2], generator)
        for _ in range(4000)
    )
    assert chosen[2] == 0
    assert chosen[0] / 4000 == pytest.approx(0.75, abs=0.03)
    even = Counter(rule().next([5, 5], [0, 0], [0.0, 0.0], [0, 1], generator) for _ in range(4000))
    assert even[0] / 4000 == pytest.approx(0.5, abs=0.03)


def test_gains_are_areas_that_others_do_not_have_whoever_came_first() -> None:
    costs = np.array([[0.0, 0.5], [0.5, 0.0], [0.25, 0.25], [0.0, 0.5]])
    reference = np.array([1.0, 1.0])
    # By hand: all three cover 0.8125, the last two alone 0.6875; beside the first, which covers a
    # half, the second adds a quarter, and the third then a square of a quarter.
    found = gains(costs[:3], np.array([0, 1, 1]), reference)
    assert found.tolist() == pytest.approx([0.125, 0.25, 0.0625])
    turned = gains(costs[[2, 1, 0]], np.array([1, 1, 0]), reference)
    assert turned[2] == pytest.approx(found[0])
    # What another branch has, too, is worth nothing in either.
    twice = gains(costs[[0, 3]], np.array([0, 1]), reference)
    assert twice.tolist() == [0.0, 0.0]


def test_newer_gains_are_worth_more() -> None:
    assert worth([]) == 0.0
    assert worth([1.0, 0.0]) == pytest.approx(0.8 / 1.8)
    assert worth([0.0, 1.0]) == pytest.approx(1.0 / 1.8)
