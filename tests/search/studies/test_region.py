"""The region of interest: forms of `objectives`, what is refused, and from where gains count."""

import math
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from search.documents.objectives import USUAL_OBJECTIVES
from search.documents.region import Region
from search.errors import SpecRefused
from search.fronts.pareto import reference_point
from search.samplers.modelling.acquisition import Reference, references
from search.samplers.modelling.candidates import farthest_costs
from search.samplers.modelling.costs import Costs
from search.samplers.modelling.predicted_errors import PredictedErrors
from search.samplers.sampler import Past
from search.sampling.sampler_context import sampler_context_of
from search.spaces.space import SearchSpace
from search.studies.spec import StudySpec
from search.studies.submission import checked_space
from tests.storage.records import trial

SPEC: dict[str, Any] = {
    "task": {"kind": "digits"},
    "architectures": ["rnn"],
    "parametrizations": ["dense", "low_rank"],
    "space": {"hidden_size": {"low": 8, "high": 32}},
}
BOUNDS: dict[str, Any] = {
    "quality": {"at_least": 0.9},
    "parameters": {"at_most": 2000},
    "throughput": {},
}


def spec_of(objectives: object, **changes: Any) -> StudySpec:
    return StudySpec.model_validate({**SPEC, "objectives": objectives, **changes})


def test_names_alone_have_no_region_and_are_stored_as_they_were() -> None:
    spec = spec_of(["quality", "parameters"])
    assert tuple(spec.objectives) == ("quality", "parameters")
    assert spec.region == Region()
    assert spec.region.words() == ""
    assert spec.model_dump(mode="json")["objectives"] == ["quality", "parameters"]


def test_bounds_are_iterated_by_name_and_stored_as_they_were_sent() -> None:
    spec = spec_of(BOUNDS)
    assert tuple(spec.objectives) == USUAL_OBJECTIVES
    stored = spec.model_dump(mode="json")
    assert str(stored["objectives"]) == str(BOUNDS), "counts stay whole numbers"
    assert StudySpec.model_validate(stored) == spec == StudySpec.model_validate(spec.model_dump())
    assert Region.of_document(stored) == spec.region
    assert Region.of_document({}) == Region()
    assert spec.needs_throughput
    assert spec_of({"parameters": {"at_most": 900}}).sampler.kind == "tpe"


@pytest.mark.parametrize(
    ("bound", "words"),
    [
        ({"least": 0.5}, "unknown key 'least'; allowed are at_least or at_most"),
        ({"at_least": 0.5, "at_most": 0.75}, "at_least 0.5 and at_most 0.75 are two bounds"),
        ({"at_least": 0}, "greater than 0"),
        ({"at_least": -0.5}, "greater than 0"),
        ({"at_least": math.inf}, "finite"),
        ({"at_least": math.nan}, "finite"),
        ({"at_least": "0.5"}, "valid number"),
        (0.5, "dictionary"),
    ],
)
def test_what_is_no_bound_is_refused(bound: object, words: str) -> None:
    with pytest.raises(ValidationError, match=r"objectives\.bounds\.quality") as refused:
        spec_of({"quality": bound})
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "path", "words"),
    [
        (
            {"objectives": {"quality": {"at_most": 0.9}}},
            "objectives.quality.at_most",
            (
                "the direction of quality (accuracy) is maximize",
                "allowed is at_least, not at_most 0.9",
            ),
        ),
        (
            {"task": {"kind": "addition"}, "objectives": {"quality": {"at_least": 0.1}}},
            "objectives.quality.at_least",
            ("the direction of quality (mse) is minimize", "allowed is at_most, not at_least 0.1"),
        ),
        (
            {"objectives": {"quality": {}, "parameters": {"at_least": 900}}},
            "objectives.parameters.at_least",
            ("the direction of parameters is minimize", "allowed is at_most, not at_least 900"),
        ),
        (
            {"objectives": {"quality": {"at_least": 0.1}}},
            "objectives.quality.at_least",
            ("accuracy 0.1 is no better than the baseline, 0.1", "above 0.1, up to 1"),
        ),
        (
            {"task": {"kind": "addition"}, "objectives": {"quality": {"at_most": 0.2}}},
            "objectives.quality.at_most",
            ("mse 0.2 is no better than the baseline, 0.166667", "below 0.166667"),
        ),
        (
            {"objectives": {"quality": {"at_least": 1.5}}},
            "objectives.quality.at_least",
            ("no model has accuracy 1.5", "above 0.1, up to 1"),
        ),
        (
            {"objectives": BOUNDS, "limits": {"parameters": 1500}},
            "objectives.parameters.at_most",
            ("limits exclude 2,000", "at most 1,500"),
        ),
        (
            {
                "objectives": {"quality": {}, "latency": {"at_most": 0.1}},
                "limits": {"latency_seconds": 0.01},
            },
            "objectives.latency.at_most",
            ("limits exclude 0.1", "at most 0.01"),
        ),
        (
            {"objectives": {"quality": {}, "parameters": {"at_most": 20}}},
            "objectives.parameters.at_most",
            ("no candidate has 20 parameters or fewer", "the smallest, rnn with"),
        ),
        (
            {"objectives": {"quality": {}, "bytes": {"at_most": 20}}, "export": {"file": "c"}},
            "objectives.bytes.at_most",
            ("no candidate has 20 bytes or fewer",),
        ),
    ],
)
def test_a_bound_that_leaves_nothing_or_means_nothing_is_refused(
    changes: dict[str, Any], path: str, words: tuple[str, ...]
) -> None:
    with pytest.raises(SpecRefused) as refused:
        checked_space(StudySpec.model_validate({**SPEC, **changes}))
    (fault,) = refused.value.faults
    assert fault.path == path
    for word in words:
        assert word in fault.message


def test_a_preset_below_the_space_may_be_what_interests() -> None:
    small = {
        "parametrizations": ["dense"],
        "space": {"hidden_size": 64},
        "presets": ["rnn-32"],
    }
    with pytest.raises(SpecRefused):
        checked_space(spec_of(BOUNDS, **{**small, "presets": []}))
    checked_space(spec_of({**BOUNDS, "parameters": {"at_most": 2500}}, **small))


def test_hypervolumes_are_measured_from_the_bounds() -> None:
    whole = reference_point(spec_of(["quality", "parameters", "throughput"]), largest_count=9000)
    region = reference_point(spec_of(BOUNDS), largest_count=9000)
    assert region == {**whole, "quality": 0.9, "parameters": 2000.0}


def test_a_trial_is_outside_by_any_value_that_it_has() -> None:
    region = spec_of(BOUNDS).region
    inside = trial("s", 0, quality=0.9, parameters=2000, throughput=1.0)
    assert not region.is_outside(inside)
    assert region.is_outside(trial("s", 0, quality=0.89, parameters=2000))
    assert region.is_outside(trial("s", 0, quality=0.99, parameters=2001))
    # What is not known yet decides nothing.
    assert not region.is_outside(trial("s", 0, parameters=100))
    assert region.is_outside(trial("s", 0, parameters=3000))
    assert not Region().is_outside(trial("s", 0, quality=0.0, parameters=10**9))


def test_a_region_in_words_has_the_names_and_units_of_its_values() -> None:
    region = spec_of(
        {
            "quality": {"at_least": 0.9},
            "parameters": {"at_most": 20000},
            "throughput": {"at_least": 1e5},
            "bytes": {},
            "latency": {"at_most": 2e-3},
        }
    ).region
    assert region.words({"quality": "accuracy"}) == (
        "accuracy from 0.9, parameters up to 20,000, throughput from 100,000 samples/s, "
        "latency up to 2.00 ms"
    )
    assert spec_of({"quality": {"at_least": 0.9}}).region.words() == "quality from 0.9"


def test_a_sampler_counts_gains_from_the_bounds_on_its_own_axes() -> None:
    spec = spec_of({**BOUNDS, "throughput": {"at_least": 1e5}})
    past = Past(trials=(), validations={}, validation_samples=400)
    context = sampler_context_of(spec, SearchSpace(spec), lambda: past)
    errors = PredictedErrors(context, past, [])
    assert errors.reference == pytest.approx(math.log(0.1))
    assert errors.baseline == pytest.approx(math.log(0.9))
    bounds = Costs(spec.objectives, []).bounds(context.region)
    assert bounds == pytest.approx([math.log10(2000), -5])
    # A bound beyond all that there is moves nothing: far away only extremes would count.
    cheap, dear = np.array([[2.0, -6.0]]), np.array([[4.0, -4.0]])
    assert farthest_costs(cheap, cheap, bounds) == pytest.approx([2.05, -5.95])
    assert farthest_costs(cheap, dear, bounds) == pytest.approx(bounds)
    everywhere = Costs(spec.objectives, []).bounds(Region())
    assert farthest_costs(cheap, dear, everywhere) == pytest.approx([4.05, -3.95])


def test_beside_a_region_all_that_was_begun_counts_a_little() -> None:
    begun = np.array([[3.0, -4.0], [2.0, -5.0]])
    whole = Reference(error=math.log(0.9), costs=np.array([3.05, -3.95]))
    assert references(whole, begun, baseline_error=math.log(0.9)) == [whole]
    region = Reference(error=math.log(0.1), costs=np.array([2.5, -3.95]))
    first, rest = references(region, begun, baseline_error=math.log(0.9))
    assert first is region
    assert rest.error == math.log(0.9)
    assert rest.costs == pytest.approx([3.05, -3.95])
    assert rest.weight < 1e-3 < first.weight
