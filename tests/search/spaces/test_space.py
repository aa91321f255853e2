"""The search space.

Overrides, refusals with their paths, static ranges that are reached at both ends.
"""

import numpy as np
import optuna
import pytest
from optuna.samplers import TPESampler
from pydantic import ValidationError

from search.errors import SpecRefused
from search.samplers import Tpe
from search.spaces.dimension import (
    ChoiceDimension,
    IntegerDimension,
    Options,
    RealDimension,
)
from search.spaces.draws import CornerSource, TrialSource
from search.spaces.space import SearchSpace, describe
from search.studies.catalog import catalog
from search.studies.spec import StudySpec
from search.studies.submission import checked_space

DEFAULTS = ("dense", "householder_svd", "low_rank", "low_rank_diagonal", "packed_rotations")
PAIRS = [(a, p) for a, kinds in catalog().combinations.items() for p in kinds]


def study(**fields: object) -> StudySpec:
    document = {"task": {"kind": "digits"}, "architectures": ["rnn"], "parametrizations": ["dense"]}
    return StudySpec.model_validate({**document, **fields})


def dimensions(spec: StudySpec) -> dict[str, object]:
    return {dimension.name: dimension for dimension in describe(spec).dimensions}


def highest(spec: StudySpec, name: str) -> float:
    dimension = SearchSpace(spec).dimensions[name]
    assert isinstance(dimension, IntegerDimension | RealDimension)
    return dimension.high


def refusal(**fields: object) -> dict[str, str]:
    with pytest.raises(SpecRefused) as caught:
        checked_space(study(**fields))
    return {fault.path: fault.message for fault in caught.value.faults}


def test_a_range_replaces_the_variants_own() -> None:
    found = dimensions(study(space={"hidden_size": {"low": 24, "high": 40, "step": 8}}))
    assert found["rnn.hidden_size"] == IntegerDimension(
        name="rnn.hidden_size", low=24, high=40, step=8
    )


def test_a_pin_is_no_dimension_and_a_fuller_name_goes_first() -> None:
    spec = study(
        architectures=["rnn", "gru"],
        space={"hidden_size": 16, "gru.hidden_size": {"low": 8, "high": 9}},
    )
    found = dimensions(spec)
    assert "rnn.hidden_size" not in found
    assert found["gru.hidden_size"] == IntegerDimension(name="gru.hidden_size", low=8, high=9)


def test_fields_that_are_not_searched_by_default_can_be() -> None:
    spec = study(
        parametrizations=["householder_svd"],
        space={
            "sigma_star": {"low": 0.5, "high": 1.5},
            "rnn.activation": ["relu", "abs"],
            "training.decay": 0.9,
        },
    )
    assert spec.space["rnn.activation"] == Options(options=("relu", "abs"))
    found = dimensions(spec)
    assert found["householder_svd.sigma_star"] == RealDimension(
        name="householder_svd.sigma_star", low=0.5, high=1.5
    )
    assert found["rnn.activation"] == ChoiceDimension(
        name="rnn.activation", options=("relu", "abs")
    )
    drawn = SearchSpace(spec).draw(CornerSource(highest=True))
    assert drawn.spec.training.decay == 0.9
    assert drawn.hyperparameters["training.decay"] == 0.9


def test_a_range_is_cut_to_what_the_largest_layer_holds() -> None:
    spec = study(
        parametrizations=["householder_svd"],
        space={"hidden_size": {"low": 8, "high": 20}, "m1": {"low": 1, "high": 500}},
    )
    assert dimensions(spec)["householder_svd.m1"] == IntegerDimension(
        name="householder_svd.m1", low=1, high=20
    )


def test_what_was_drawn_is_cut_to_the_layer_and_both_values_are_kept() -> None:
    spec = study(
        parametrizations=["householder_svd"],
        space={"rnn.hidden_size": {"options": [8, 32]}, "m1": {"low": 1, "high": 32}},
    )
    source = CornerSource(highest=True, choices={"rnn.hidden_size": 8})
    drawn = SearchSpace(spec).draw(source)
    assert drawn.drawn["householder_svd.m1"] == 32
    assert drawn.hyperparameters["householder_svd.m1"] == 8


@pytest.mark.parametrize(
    ("fields", "path", "words"),
    [
        ({"space": {"hiden_size": 8}}, "space.hiden_size", ["hiden_size", "hidden_size"]),
        ({"space": {"gru.reset": "after"}}, "space.gru.reset", ["gru.reset"]),
        (
            {"parametrizations": ["low_rank"], "space": {"hidden_size": 16, "d": 17}},
            "space.d",
            ["17", "allowed is 1 to 16"],
        ),
        (
            {
                "parametrizations": ["low_rank"],
                "space": {"hidden_size": 16, "low_rank.d": {"low": 90, "high": 99}},
            },
            "space.low_rank.d",
            ["90 to 99", "at most"],
        ),
        (
            {"parametrizations": ["householder_svd"], "space": {"r": -0.5}},
            "space.r",
            ["-0.5", "greater than"],
        ),
        ({"space": {"hidden_size": "many"}}, "space.hidden_size", ["'many'", "integer"]),
        (
            {"space": {"hidden_size": {"low": 1.5, "high": 4}}},
            "space.hidden_size",
            ["1.5", "whole"],
        ),
        (
            {"architectures": ["gru"], "space": {"reset": {"low": 0, "high": 1}}},
            "space.reset",
            ["gru.reset", "no range"],
        ),
        (
            {"architectures": ["gru"], "space": {"reset": "later"}},
            "space.reset",
            ["'later'", "before"],
        ),
        (
            {
                "parametrizations": ["low_rank"],
                "space": {"hidden_size": 16, "d": {"options": [3, 17]}},
            },
            "space.d",
            ["17", "allowed is 1 to 16"],
        ),
        ({"limits": {"parameters": 10}}, "limits.parameters", ["10", "rnn with dense"]),
        (
            {"architectures": ["urnn"], "parametrizations": ["low_rank", "householder_svd"]},
            "architectures.0",
            ["'urnn'", "low_rank: defined for real", "householder_svd: defined for real"],
        ),
        (
            {"architectures": ["rnn", "mlp"], "throughput": {"sequence_length": 20}},
            "throughput.sequence_length",
            ["20", "8", "mlp"],
        ),
        (
            {"presets": ["rnn-32", "lstm-32"], "budget": {"trials": 1}},
            "presets",
            ["2 presets", "1 trials"],
        ),
        (
            {"presets": ["mlp-32-40"], "throughput": {"sequence_length": 20}},
            "throughput.sequence_length",
            ["mlp"],
        ),
    ],
)
def test_refusals_name_the_path_the_value_and_what_is_allowed(fields, path, words) -> None:
    faults = refusal(**fields)
    assert list(faults) == [path]
    for word in words:
        assert word in faults[path]


@pytest.mark.parametrize(("architecture", "parametrization"), PAIRS)
def test_parameter_range_bounds_every_draw_and_is_reached(architecture, parametrization) -> None:
    spec = study(
        architectures=[architecture],
        parametrizations=[parametrization],
        space={"hidden_size": {"low": 5, "high": 24}},
    )
    space = SearchSpace(spec)
    counts = {
        space.draw(CornerSource(highest=highest)).spec.model.parameter_count()
        for highest in (False, True)
    }
    optuna.logging.disable_default_handler()
    sampled = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    drawn = [space.draw(TrialSource(sampled.ask())).spec.model.parameter_count() for _ in range(60)]
    assert min(counts) == space.parameter_range.low <= min(drawn)
    assert max(counts) == space.parameter_range.high >= max(drawn)


@pytest.mark.slow
def test_every_dimension_is_modelled_jointly_and_reached_at_both_ends() -> None:
    """200 draws by TPE: its joint model holds every dimension, and no range locks itself to a part.

    A dimension whose bounds move with another's value falls out of the joint model, or is locked to
    the bounds of its first draw.
    """
    spec = StudySpec.model_validate(
        {
            "task": {"kind": "digits"},
            "architectures": ["rnn", "gru"],
            "parametrizations": list(DEFAULTS),
        }
    )
    space = SearchSpace(spec)
    described = {dimension.name: dimension for dimension in space.describe().dimensions}
    optuna.logging.disable_default_handler()
    sampler = Tpe().build(seed=0)
    assert isinstance(sampler, TPESampler)
    sampled = optuna.create_study(sampler=sampler, directions=["maximize", "minimize"])
    generator = np.random.default_rng(0)
    seen: dict[str, list[object]] = {}
    for _ in range(200):
        trial = sampled.ask()
        drawn = space.draw(TrialSource(trial))
        for name, value in drawn.drawn.items():
            seen.setdefault(name, []).append(value)
        sampled.tell(trial, [generator.random(), generator.random()])
    asked = sampled.ask()
    groups = sampler._search_space_group
    assert groups is not None
    jointly = {name for group in groups.search_spaces for name in group}
    space.draw(TrialSource(asked))
    assert jointly == set(described)
    for name, dimension in described.items():
        values = seen[name]
        if isinstance(dimension, ChoiceDimension):
            assert set(values) == set(dimension.options)
            continue
        assert isinstance(dimension, IntegerDimension | RealDimension)
        ends = [float(dimension.low), float(dimension.high)]
        points = np.array(values, float)
        if dimension.log:
            ends, points = list(np.log(ends)), np.log(points)
        margin = 0.15 * (ends[1] - ends[0])
        assert points.min() <= ends[0] + margin, name
        assert points.max() >= ends[1] - margin, name


def test_every_draw_from_the_space_of_everything_can_be_built() -> None:
    found = catalog()
    spec = StudySpec.model_validate(
        {
            "task": {"kind": "digits"},
            "architectures": [entry.kind for entry in found.architectures],
            "parametrizations": [entry.kind for entry in found.parametrizations],
            "space": {"hidden_size": {"low": 2, "high": 40}},
        }
    )
    space = SearchSpace(spec)
    optuna.logging.disable_default_handler()
    sampled = optuna.create_study(
        sampler=Tpe(startup_trials=150).build(seed=0), directions=["maximize", "minimize"]
    )
    generator = np.random.default_rng(0)
    for _ in range(200):
        trial = sampled.ask()
        drawn = space.draw(TrialSource(trial))
        drawn.spec.model.check()
        count = drawn.spec.model.parameter_count()
        assert space.parameter_range.low <= count <= space.parameter_range.high
        sampled.tell(trial, [generator.random(), float(count)])
    assert {name for trial in sampled.trials for name in trial.params} == set(space.dimensions)


def test_an_architecture_with_other_parametrizations_has_a_choice_of_its_own() -> None:
    """The name `parametrization` is shared only where the options are the same for all."""
    described = dimensions(
        StudySpec.model_validate(
            {"task": {"kind": "digits"}, "parametrizations": ["dense", "low_rank"]}
        )
    )
    assert described["parametrization"] == ChoiceDimension(
        name="parametrization", options=("dense", "low_rank")
    )


def test_candidates_of_equal_counts_are_no_fault() -> None:
    """16 numbers each: two factors of 8, or four packed rotations of four angles."""
    spec = study(architectures=["rnn"], parametrizations=["low_rank", "packed_rotations"])
    pinned = spec.model_copy(update={"space": {"hidden_size": 8, "d": 1, "count": 4}})
    found = SearchSpace(pinned).parameter_range
    assert found.low == found.high


def test_recurrent_models_are_measured_at_any_length() -> None:
    checked_space(study(throughput={"sequence_length": 20}))
    checked_space(study(architectures=["mlp"], throughput={"sequence_length": 8}))


def test_a_range_follows_only_architectures_that_its_parametrization_can_be_on() -> None:
    """A uRNN of 512 complex units holds no reflector of these; its unitary matrices have none."""
    spec = study(
        architectures=["rnn", "urnn", "mlp"],
        parametrizations=["dense", "householder_svd", "low_rank"],
        space={
            "rnn.hidden_size": 24,
            "mlp.hidden_size": {"low": 8, "high": 40},
            "urnn.hidden_size": 512,
        },
    )
    assert highest(spec, "householder_svd.m1") == 40
    assert highest(spec, "low_rank.d") == 19


@pytest.mark.parametrize("d", [16, 20, 32])
def test_a_pinned_rank_may_save_nothing(d: int) -> None:
    """Ranges end below half the size, where two factors are less than the matrix; a pin may not."""
    space = SearchSpace(study(parametrizations=["low_rank"], space={"hidden_size": 32, "d": d}))
    assert space.draw(CornerSource(highest=True)).hyperparameters["low_rank.d"] == d
    ranged = study(
        parametrizations=["low_rank"],
        space={"hidden_size": 32, "d": {"low": 2, "high": d}},
    )
    assert highest(ranged, "low_rank.d") == 15
    options = study(
        parametrizations=["low_rank"], space={"hidden_size": 32, "d": {"options": [3, d]}}
    )
    drawn = SearchSpace(options).draw(CornerSource(highest=True))
    assert drawn.hyperparameters["low_rank.d"] == drawn.drawn["low_rank.d"] == d


def test_a_pin_that_a_small_layer_cannot_hold_is_cut_there() -> None:
    spec = study(
        parametrizations=["householder_svd"],
        space={"hidden_size": {"options": [8, 32]}, "m1": 20},
    )
    for size, held in ((8, 8), (32, 20)):
        drawn = SearchSpace(spec).draw(
            CornerSource(highest=False, choices={"rnn.hidden_size": size})
        )
        assert drawn.hyperparameters["householder_svd.m1"] == held
        drawn.spec.model.check()


def test_a_boolean_field_is_searched_by_its_options() -> None:
    spec = study(space={"learned_initial_state": {"options": [True, False]}})
    space = SearchSpace(spec)
    assert space.dimensions["rnn.learned_initial_state"] == ChoiceDimension(
        name="rnn.learned_initial_state", options=(True, False)
    )
    optuna.logging.disable_default_handler()
    sampled = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    seen = {
        space.draw(TrialSource(sampled.ask())).hyperparameters["rnn.learned_initial_state"]
        for _ in range(20)
    }
    assert seen == {True, False}
    sizes = [space.parameter_range.low, space.parameter_range.high]
    smallest, largest = (
        SearchSpace(study(space={"learned_initial_state": value})).parameter_range
        for value in (False, True)
    )
    assert sizes == [smallest.low, largest.high]


def test_an_option_that_cannot_be_built_takes_no_candidate_away() -> None:
    """Square matrices alone are turned: with `all` the input matrix is not one."""
    spec = study(
        parametrizations=["packed_rotations"],
        space={"structured_inputs": {"options": ["all", "none"]}},
    )
    assert len(describe(spec).candidates) == 1
    alone = study(parametrizations=["packed_rotations"], space={"structured_inputs": "all"})
    with pytest.raises(SpecRefused, match=r"rnn\.inputs\.0: packed_rotations: .*square"):
        checked_space(alone)


def test_lists_and_numbers_of_a_space_have_bounds() -> None:
    whole = r"a whole number of \d+ bits is too large"
    for override in ({"low": 1, "high": 10**400}, {"options": [1, 10**400]}, 10**400, -(10**400)):
        for name in ("hidden_size", "training.learning_rate", "training.clip_norm"):
            with pytest.raises(ValidationError, match=whole):
                study(space={name: override})
    with pytest.raises(ValidationError, match="at most 10000 items"):
        study(space={"hidden_size": {"options": list(range(1, 10_002))}})
    with pytest.raises(ValidationError, match="at most 2000 items"):
        study(space={f"x{number}": 1 for number in range(2001)})
    with pytest.raises(ValidationError, match="at most 100 items"):
        study(architectures=["gru"] * 60_000)
    assert checked_space(study(space={"hidden_size": {"options": list(range(1, 10_001))}}))


def test_options_that_would_take_long_to_look_at_are_refused_with_their_number() -> None:
    flags = {"options": [True, False]}
    names = ("learned_initial_state", "input_weight_norm", "weight_norm")
    few = dict.fromkeys(names, flags)
    assert describe(study(parametrizations=DEFAULTS, space=few)).dimensions
    optimizers = {"options": ["adam", "sgd", "rmsprop", "adagrad"]}
    activations = {"options": ["tanh", "relu", "leaky_relu", "abs", "identity"]}
    masks = {"options": ["tied", "per_gate"]}
    structured = {"options": ["none", "square", "all"]}
    many = {
        **few,
        "training.optimizer": optimizers,
        "activation": activations,
        "dropout_masks": masks,
        "dense.initialisation": {
            "options": ["glorot_uniform", "he_normal", "orthogonal", "identity"]
        },
        "structured_inputs": structured,
    }
    with pytest.raises(SpecRefused, match=r"make \d+ combinations.*allowed are 4000"):
        checked_space(study(parametrizations=DEFAULTS, space=many))


def test_a_call_that_is_timed_has_a_bounded_size() -> None:
    with pytest.raises(ValidationError, match="1000000"):
        study(throughput={"sequence_length": 10**12})
    large = study(throughput={"sequence_length": 10**6, "batch_size": 65536})
    with pytest.raises(
        SpecRefused, match=r"65536 samples of 1000000 steps.*allowed are 2147483648"
    ):
        checked_space(large)


def test_of_many_unknown_names_the_first_are_told() -> None:
    with pytest.raises(SpecRefused) as refused:
        checked_space(study(space={f"x{number}": 1 for number in range(1500)}))
    assert 1 <= len(refused.value.faults) <= 20
