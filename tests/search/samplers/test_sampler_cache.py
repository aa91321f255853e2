"""What is kept of trials from one suggestion to the next changes no suggestion."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from search.samplers.modelling.sampler_cache import SamplerCache
from search.samplers.sampler import SamplerContext, WholeSampler
from search.sampling.sampler_context import sampler_context_of
from search.spaces.dimension import Scalar
from storage.records import TrialRecord, TrialState
from tests.search.samplers.test_samplers import Played


def test_only_another_record_is_computed_anew() -> None:
    played = Played({"kind": "random"})
    played.play(2)
    computed: list[TrialRecord] = []

    def number_of(trial: TrialRecord) -> int:
        computed.append(trial)
        return trial.number

    sampler_cache = SamplerCache()
    changed = replace(played.trials[1], state=TrialState.RUNNING)
    for trial in (*played.trials, *played.trials, changed, changed):
        assert sampler_cache.of(trial, "number", number_of) == trial.number
    assert [id(one) for one in computed] == [id(one) for one in (*played.trials, changed)]
    assert sampler_cache.of(changed, "state", lambda one: one.state) == TrialState.RUNNING


def test_a_trial_that_ends_counts_as_it_ended() -> None:
    """One sampler was asked while the trial ran, the other one knows of its end alone."""
    played = Played({"kind": "known_cost", "startup_trials": 3, "random_share": 0.0})
    played.play(10)
    ended = replace(played.trials[-2], quality=0.2, parameters=7, throughput=2e6)
    running: dict[str, Any] = {"state": TrialState.RUNNING, "quality": None, "told_at": None}

    def suggested(study: SamplerContext) -> Mapping[str, Scalar]:
        sampler = played.spec.sampler.build_for(study, seed=3)
        assert isinstance(sampler, WholeSampler)
        return sampler.values_for(10)

    fresh, reused = (sampler_context_of(played.spec, played.space, played.past) for _ in range(2))
    played.trials[-2] = replace(ended, **running)
    suggested(reused)
    played.trials[-2] = ended
    assert suggested(reused) == suggested(fresh)
