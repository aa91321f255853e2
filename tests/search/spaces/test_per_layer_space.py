"""Layers with dimensions of their own: names, overrides, refusals, ends, limits and samplers."""

import math
from collections.abc import Iterator
from typing import Any

import optuna
import pytest
from optuna.samplers import RandomSampler

from models.architectures import AnyArchitecture, Gru, Lstm, Mlp, Resnet
from models.compression import FITS
from models.parametrizations import PARAMETRIZATIONS, Dense, PerLayer, UnitaryFull
from models.spec import kind_of
from search.errors import SpecRefused
from search.samplers.modelling.branching import branches_of
from search.samplers.modelling.costs import Costs
from search.samplers.modelling.encoding import Encoding, values_of_draw, values_of_trial
from search.spaces.dimension import ChoiceDimension, IntegerDimension, RealDimension
from search.spaces.draws import CornerSource, TrialSource, names_by_layer, names_of
from search.spaces.limits import excesses
from search.spaces.model_space import DrawnTrial
from search.spaces.space import SearchSpace, describe
from search.studies.named_trials import NamedFirst, NamedTrial
from search.studies.spec import StudySpec
from search.studies.submission import checked_space
from search.training.compression import MOST_LAYERS_APART
from storage.records import TrialState
from tests.search.samplers.test_samplers import Played

# What it stores is complex, and no layer of torch's is.
CONVERTIBLE = [kind_of(one) for one in PARAMETRIZATIONS if one in FITS and one is not UnitaryFull]
DEEP = Lstm(hidden_size=12, layers=2)


def compress(architecture: AnyArchitecture = DEEP, **fields: Any) -> dict[str, Any]:
    return {
        "model": "m",
        "layers": "each",
        "facts": {"sha256": "0" * 64, "architecture": architecture.model_dump()},
        **fields,
    }


def study(architecture: AnyArchitecture = DEEP, **fields: Any) -> StudySpec:
    return StudySpec.model_validate(
        {
            "task": {"kind": "digits"},
            "architectures": [architecture.kind],
            "compress": compress(architecture, **fields.pop("compress", {})),
            **fields,
        }
    )


def names(spec: StudySpec) -> set[str]:
    found = {dimension.name for dimension in describe(spec).dimensions}
    return {name for name in found if not name.startswith("training.")}


def corner(spec: StudySpec, *, highest: bool = True, kind: str = "low_rank") -> DrawnTrial:
    choices = {"parametrization": kind}
    return SearchSpace(spec).draw(CornerSource(highest=highest, choices=choices))


def refusal(spec: StudySpec) -> dict[str, str]:
    with pytest.raises(SpecRefused) as caught:
        checked_space(spec)
    return {fault.path: fault.message for fault in caught.value.faults}


def draws(spec: StudySpec, count: int) -> Iterator[DrawnTrial]:
    space = SearchSpace(spec)
    asked = optuna.create_study(sampler=RandomSampler(seed=0))
    for _ in range(count):
        yield space.draw(TrialSource(asked.ask()))


def test_each_layer_has_the_dimensions_of_the_family() -> None:
    spec = study(parametrizations=["low_rank", "householder_svd"])
    assert names(spec) == {
        "parametrization",
        "low_rank.0.d",
        "low_rank.1.d",
        *(f"householder_svd.{layer}.{field}" for layer in (0, 1) for field in ("m1", "m2", "r")),
    }
    shared = study(parametrizations=["low_rank"], compress={"layers": "shared"})
    assert names(shared) == {"low_rank.d"}
    assert shared == study(parametrizations=["low_rank"]).model_copy(
        update={"compress": shared.compress}
    )


@pytest.mark.parametrize("kind", CONVERTIBLE)
def test_a_model_of_every_family_has_a_member_for_each_layer(kind: str) -> None:
    spec = study(parametrizations=[kind])
    for highest in (True, False):
        drawn = corner(spec, highest=highest, kind=kind)
        model = drawn.spec.model
        model.check()
        assert model.parametrization.family == drawn.candidate.parametrization == kind
        shared = corner(
            study(parametrizations=[kind], compress={"layers": "shared"}), highest=highest
        )
        assert model.parameter_count() == shared.spec.model.parameter_count()
        if kind == "dense":
            assert model.parametrization == Dense()
            continue
        assert isinstance(model.parametrization, PerLayer)
        for layer, member in enumerate(model.parametrization.layers):
            assert member == shared.spec.model.parametrization
            for field in type(member).model_fields:
                name = f"{kind}.{layer}.{field}"
                if name in drawn.hyperparameters:
                    assert drawn.hyperparameters[name] == getattr(member, field)
        own = {name for name in drawn.hyperparameters if name.startswith(f"{kind}.")}
        assert {name.split(".")[1] for name in own} == {"0", "1"}


def test_layers_are_drawn_apart_and_the_same_again() -> None:
    spec = study(parametrizations=["low_rank"])
    one, two = (list(draws(spec, 20)) for _ in range(2))
    assert one == two
    pairs = {(d.hyperparameters["low_rank.0.d"], d.hyperparameters["low_rank.1.d"]) for d in one}
    assert any(first != second for first, second in pairs)
    space = SearchSpace(spec)
    for drawn in one:
        drawn.spec.model.check()
        assert drawn.drawn.keys() == space.dimensions.keys()
        assert space.place(drawn.spec) == drawn
        count = drawn.spec.model.parameter_count()
        assert space.parameter_range.low <= count <= space.parameter_range.high


def test_a_single_layer_is_what_it_is_without() -> None:
    single = Gru(hidden_size=12)
    apart, shared = (
        study(single, compress={"layers": layers}, parametrizations=["low_rank", "householder"])
        for layers in ("each", "shared")
    )
    assert describe(apart) == describe(shared)
    assert list(draws(apart, 5)) == list(draws(shared, 5))


def test_residual_layers_lie_around_zero_and_blocks_have_two() -> None:
    drawn = corner(study(Resnet(hidden_size=8, blocks=2), parametrizations=["householder_svd"]))
    assert isinstance(drawn.spec.model.parametrization, PerLayer)
    assert len(drawn.spec.model.parametrization.layers) == 4
    assert {one.model_dump()["sigma_star"] for one in drawn.spec.model.parametrization.layers} == {
        0
    }


def test_a_name_without_a_layer_counts_for_all_and_a_layers_own_wins() -> None:
    space = {
        "m1": 3,
        "householder_svd.m2": {"low": 2, "high": 4},
        "householder_svd.1.m1": {"low": 5, "high": 6},
        "householder_svd.0.m2": 1,
        "householder_svd.1.bound": "clip",
        "r": 0.2,
    }
    spec = study(parametrizations=["householder_svd"], space=space)
    found = SearchSpace(spec).dimensions
    assert {name for name in found if not name.startswith("training.")} == {
        "householder_svd.1.m1",
        "householder_svd.1.m2",
    }
    assert found["householder_svd.1.m1"] == IntegerDimension(
        name="householder_svd.1.m1", low=5, high=6
    )
    drawn = corner(spec)
    model = drawn.spec.model.parametrization
    assert isinstance(model, PerLayer)
    first, second = (member.model_dump() for member in model.layers)
    assert (first["m1"], first["m2"], first["bound"], first["r"]) == (3, 1, "sigmoid", 0.2)
    assert (second["m1"], second["m2"], second["bound"], second["r"]) == (6, 4, "clip", 0.2)
    assert drawn.hyperparameters["householder_svd.0.m1"] == 3
    assert drawn.hyperparameters["householder_svd.1.bound"] == "clip"
    assert "householder_svd.0.bound" not in drawn.hyperparameters


def test_a_range_of_a_layer_is_cut_to_what_it_holds() -> None:
    space = {"low_rank.d": {"low": 1, "high": 500}, "low_rank.1.d": {"low": 2, "high": 90}}
    found = SearchSpace(study(parametrizations=["low_rank"], space=space)).dimensions
    assert found["low_rank.0.d"] == IntegerDimension(name="low_rank.0.d", low=1, high=5)
    assert found["low_rank.1.d"] == IntegerDimension(name="low_rank.1.d", low=2, high=5)


@pytest.mark.parametrize(
    ("space", "path", "words"),
    [
        ({"low_rank.2.d": 3}, "space.low_rank.2.d", ["low_rank.0.d", "low_rank.1.d", "low_rank.d"]),
        ({"low_rank.-1.d": 3}, "space.low_rank.-1.d", ["low_rank.1.d"]),
        ({"low_rank.1.m1": 3}, "space.low_rank.1.m1", ["low_rank.1.d"]),
        ({"1.d": 3}, "space.1.d", ["low_rank.1.d"]),
        ({"lstm.1.readout_dropout": 0.1}, "space.lstm.1.readout_dropout", ["allowed are"]),
        ({"low_rank.1.d": 99}, "space.low_rank.1.d", ["99", "1 to 12"]),
        ({"low_rank.1.d": {"low": 50, "high": 60}}, "space.low_rank.1.d", ["50 to 60", "5"]),
        ({"low_rank.1.d": 1.5}, "space.low_rank.1.d", ["1.5"]),
        ({"d": 99}, "space.d", ["99"]),
        ({"low_rank.0.tied": 7}, "space.low_rank.0.tied", ["7"]),
    ],
)
def test_refusals_name_the_layer_and_what_is_allowed(
    space: dict[str, Any], path: str, words: list[str]
) -> None:
    faults = refusal(study(parametrizations=["low_rank"], space=space))
    assert list(faults) == [path]
    for word in words:
        assert word in faults[path], faults


def test_a_layers_name_is_refused_where_layers_are_drawn_alike() -> None:
    spec = study(
        parametrizations=["low_rank"],
        compress={"layers": "shared"},
        space={"low_rank.1.d": 3},
    )
    assert "low_rank.d" in refusal(spec)["space.low_rank.1.d"]


def test_very_deep_models_are_drawn_alike_or_not_at_all() -> None:
    held = Mlp(hidden_size=8, layers=MOST_LAYERS_APART)
    assert len(names(study(held, parametrizations=["low_rank"]))) == MOST_LAYERS_APART
    deep = Mlp(hidden_size=8, layers=MOST_LAYERS_APART + 1)
    faults = refusal(study(deep, parametrizations=["low_rank"]))
    assert "not 65" in faults["compress.layers"]
    assert "'shared'" in faults["compress.layers"]


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ({"low_rank.0.d": 1, "low_rank.1.d": 2}, (1, 2)),
        ({"low_rank.1.d": 2}, (5, 2)),
        ({"low_rank.d": 3, "low_rank.0.d": 4}, (4, 3)),
        ({"d": 2}, (2, 2)),
        ({"d": 2, "low_rank.1.d": 3}, (2, 3)),
    ],
)
def test_a_named_trial_has_the_values_of_its_fullest_names(
    named: dict[str, int], expected: tuple[int, int]
) -> None:
    trial = NamedTrial(architecture="lstm", parametrization="low_rank", hyperparameters=named)
    source = NamedFirst(trial, CornerSource(highest=True))
    drawn = SearchSpace(study(parametrizations=["low_rank", "householder"])).draw(source)
    own = drawn.hyperparameters
    assert (own["low_rank.0.d"], own["low_rank.1.d"]) == expected
    assert (source.asked, source.faults) == (set(named), {})


def test_limits_are_held_by_the_sum_of_the_layers() -> None:
    spec = study(parametrizations=["low_rank"])
    low, high = (corner(spec, highest=highest).spec.model for highest in (False, True))
    limit = (low.parameter_count() + high.parameter_count()) // 2
    limited = study(parametrizations=["low_rank"], limits={"parameters": limit})
    over = [any(excesses(limited.limits, one.spec.model)) for one in draws(limited, 60)]
    assert {True, False} == set(over)
    for one, excess in zip(draws(limited, 60), over, strict=True):
        assert (one.spec.model.parameter_count() > limit) == excess
    least = low.parameter_count()
    faults = refusal(study(parametrizations=["low_rank"], limits={"parameters": least - 1}))
    assert str(least) in faults["limits.parameters"]


def played(sampler: dict[str, Any], trials: int, **fields: Any) -> tuple[Played, list[DrawnTrial]]:
    document = {
        "architectures": ["lstm"],
        "parametrizations": ["low_rank", "householder"],
        "compress": compress(),
        "space": {"training.batch_size": 32},
    }
    one = Played(sampler, **{**document, **fields})
    return one, one.play(trials)


@pytest.mark.parametrize(
    "sampler",
    [
        {"kind": "tpe", "startup_trials": 4},
        {"kind": "known_cost", "startup_trials": 4, "random_share": 0.2},
        {"kind": "branches", "startup_trials": 1, "sampler": {"kind": "tpe", "startup_trials": 2}},
        {"kind": "nsga2", "population": 4},
    ],
    ids=lambda sampler: sampler["kind"],
)
def test_samplers_search_every_layer_and_repeat_themselves(sampler: dict[str, Any]) -> None:
    one, drawn = played(sampler, 16)
    assert [other.drawn for other in played(sampler, 16)[1]] == [one.drawn for one in drawn]
    for name, dimension in one.space.dimensions.items():
        assert not isinstance(dimension, ChoiceDimension) or name == "parametrization"
        values = {trial.drawn[name] for trial in drawn if name in trial.drawn}
        assert len(values) > 1, name


def test_trials_belong_to_their_family() -> None:
    one, drawn = played({"kind": "random"}, 12)
    branches = branches_of(one.space)
    assert [str(branch) for branch in branches] == ["lstm with low_rank", "lstm with householder"]
    for branch in branches:
        kind = branch.parametrization
        fields = {name for name in branch.dimensions if not name.startswith("training.")}
        field = "d" if kind == "low_rank" else "m"
        assert fields == {f"{kind}.0.{field}", f"{kind}.1.{field}"}
        own = [trial for trial in one.trials if branch.is_of(trial)]
        assert own
        assert all(branch.holds(trial) for trial in own)
    encoding = Encoding(one.space.dimensions)
    for trial, draw in zip(one.trials, drawn, strict=True):
        assert encoding.row(values_of_trial(trial)) == encoding.row(values_of_draw(draw))
        assert values_of_draw(draw)["parametrization"] == trial.parametrization
    complete = [trial for trial in one.trials if trial.state == TrialState.COMPLETE]
    costs = Costs(["parameters", "throughput"], complete)
    found = costs.of_draws([drawn[trial.number] for trial in complete])
    assert found.tolist() == costs.of_trials(complete).tolist()


def test_a_shape_is_measured_once_whatever_the_reals_of_its_layers() -> None:
    space = {"householder_svd.1.m1": {"options": [2, 5]}, "m1": 2, "m2": 2}
    one, drawn = played({"kind": "random"}, 6, parametrizations=["householder_svd"], space=space)

    def count(number: int) -> Any:
        return drawn[number].hyperparameters["householder_svd.1.m1"]

    first = one.trials[0]
    other = next(trial for trial in one.trials if count(trial.number) != count(0))
    again = next(number for number in range(1, 6) if count(number) == count(0))
    assert drawn[again].spec.model != drawn[0].spec.model
    costs = Costs(["throughput"], [first, other])
    assert first.throughput is not None
    assert costs.of_draws([drawn[again]]).tolist() == [[-math.log10(first.throughput)]]


def test_names_go_from_the_fullest_to_the_field() -> None:
    assert names_of("low_rank.1.d") == ("low_rank.1.d", "low_rank.d", "d")
    assert names_of("low_rank.d") == ("low_rank.d", "d")
    assert names_of("architecture") == ("architecture",)
    assert names_by_layer("low_rank", 0) == ["low_rank"]
    assert names_by_layer("low_rank", 2) == ["low_rank.0", "low_rank.1"]


def test_ends_are_reached_by_every_layer() -> None:
    spec = study(parametrizations=["householder_svd"])
    for highest in (True, False):
        drawn = corner(spec, highest=highest).drawn
        for name, dimension in SearchSpace(spec).dimensions.items():
            assert isinstance(dimension, IntegerDimension | RealDimension)
            assert drawn[name] == (dimension.high if highest else dimension.low)
