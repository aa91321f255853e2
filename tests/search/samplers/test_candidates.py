"""What a sampler may suggest: the configurations that are offered to its model."""

from dataclasses import replace

import numpy as np
import pytest

from search.samplers.modelling.candidates import CandidateDraws
from search.samplers.modelling.configurations_drawn import number_at
from search.samplers.modelling.costs import Costs
from search.sampling.sampler_context import sampler_context_of
from search.spaces.dimension import RealDimension
from storage.records import TrialState
from tests.search.samplers.test_samplers import Played

FOUR = {
    "architectures": ["rnn"],
    "parametrizations": ["dense"],
    "space": {
        "hidden_size": {"options": [8, 16]},
        "training.learning_rate": {"options": [0.003, 0.01]},
        "training.batch_size": 32,
    },
}


def offered(played: Played) -> set[tuple[object, ...]]:
    context = sampler_context_of(played.spec, played.space, played.past)
    costs = Costs(
        context.objectives, played.trials, context.sampler_cache, file_bytes=context.file_bytes
    )
    draws = CandidateDraws(
        context, played.trials, costs, np.random.default_rng(0), in_vain=(), pins={}
    )
    return {tuple(one.hyperparameters.values()) for one in draws.fresh([])}


def test_what_was_begun_is_offered_again_only_where_a_study_replicates_and_it_is_complete() -> None:
    played = Played({"kind": "grid"}, duplicates="reuse", **FOUR)
    played.play(3)
    first, second, third = (tuple(trial.hyperparameters.values()) for trial in played.trials)
    [fourth] = offered(played)
    assert fourth not in (first, second, third)
    replicating = Played({"kind": "grid"}, duplicates="replicate", **FOUR)
    replicating.play(3)
    assert {trial.state for trial in replicating.trials} == {TrialState.COMPLETE}
    assert offered(replicating) == {first, second, third, fourth}
    replicating.trials[1] = replace(replicating.trials[1], state=TrialState.PAUSED)
    assert offered(replicating) == {first, third, fourth}


@pytest.mark.parametrize("step", [0.1, 0.05, 0.01, 0.3])
@pytest.mark.parametrize("steps", range(1, 15))
def test_the_last_of_a_range_in_steps_lies_within_it(step: float, steps: int) -> None:
    high = float(f"{steps * step:.2f}")
    dimension = RealDimension(name="d", low=0.0, high=high, log=False, step=step)
    found = [number_at(dimension, place) for place in (0.0, 0.5, 1.0)]
    assert all(map(dimension.contains, found))
    assert found[-1] == pytest.approx(high)
