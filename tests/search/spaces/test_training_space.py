"""How a model is trained, as a study spec pins and searches it."""

from typing import Any

import pytest

from search.errors import SpecRefused
from search.spaces.dimension import ChoiceDimension, RealDimension
from search.spaces.draws import CornerSource
from search.spaces.model_space import DrawnTrial
from search.spaces.space import SearchSpace, describe
from search.studies.spec import StudySpec
from search.training.trial_spec import Plateau, TrainingSpec


def study(space: dict[str, Any]) -> StudySpec:
    return StudySpec.model_validate(
        {
            "task": {"kind": "digits"},
            "architectures": ["rnn"],
            "parametrizations": ["dense"],
            "space": space,
        }
    )


def drawn(space: dict[str, Any], **choices: str) -> DrawnTrial:
    source = CornerSource(highest=True, choices={f"training.{k}": v for k, v in choices.items()})
    return SearchSpace(study(space)).draw(source)


PINS: list[tuple[str, Any]] = [
    ("optimizer", "rmsprop"),
    ("clip_value", 1.0),
    ("clip_norm", 0.25),
    ("clip_norm", None),
    ("nan_recovery", 0.01),
    ("weight_decay", 0.1),
    ("epoch_updates", 50),
    ("patience", 5),
]


@pytest.mark.parametrize("name", ["{}", "training.{}"])
@pytest.mark.parametrize(("field", "value"), PINS)
def test_a_pin_is_what_the_trial_is_trained_with(name: str, field: str, value: Any) -> None:
    trial = drawn({name.format(field): value, "learning_rate": 0.01, "batch_size": 32})
    wanted = TrainingSpec.model_validate({field: value, "learning_rate": 0.01, "batch_size": 32})
    assert trial.spec.training == wanted
    assert trial.hyperparameters[f"training.{field}"] == value
    assert not [dimension for dimension in trial.drawn if dimension.startswith("training")]


def test_a_null_survives_the_specs_document() -> None:
    spec = study({"training.clip_norm": None})
    again = StudySpec.model_validate_json(spec.model_dump_json())
    assert again == spec
    assert SearchSpace(again).draw(CornerSource(highest=True)).spec.training.clip_norm is None


def test_optimizers_and_clipping_can_be_searched() -> None:
    space = {
        "training.optimizer": {"options": ["adam", "rmsprop", "adagrad"]},
        "training.clip_value": {"low": 0.5, "high": 2.0, "log": True},
    }
    found = {dimension.name: dimension for dimension in describe(study(space)).dimensions}
    assert found["training.optimizer"] == ChoiceDimension(
        name="training.optimizer", options=("adam", "rmsprop", "adagrad")
    )
    assert found["training.clip_value"] == RealDimension(
        name="training.clip_value", low=0.5, high=2.0, log=True
    )
    training = drawn(space, optimizer="adagrad").spec.training
    assert (training.optimizer, training.clip_value) == ("adagrad", 2.0)


def test_plain_steps_may_be_as_long_as_language_models_take_them() -> None:
    training = drawn({"learning_rate": 30, "optimizer": "sgd"}).spec.training
    assert (training.optimizer, training.learning_rate) == ("sgd", 30)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("optimizer", "rms_prop", ["'rms_prop'", "'adam', 'rmsprop', 'adagrad' or 'sgd'"]),
        ("optimizer", None, ["None", "'adam'"]),
        ("optimizer", {"low": 0, "high": 1}, ["no number"]),
        ("nan_recovery", 2, ["2", "less than or equal to 1"]),
        ("clip_value", -1, ["-1", "greater than 0"]),
        ("learning_rate", None, ["None", "number"]),
        ("learning_rate", 1_001, ["1001", "less than or equal to 1000"]),
        ("batch_size", None, ["None", "integer"]),
    ],
)
def test_what_training_cannot_do_is_refused_with_its_path(
    field: str, value: Any, words: list[str]
) -> None:
    with pytest.raises(SpecRefused) as refused:
        describe(study({f"training.{field}": value}))
    [fault] = refused.value.faults
    assert fault.path == f"space.training.{field}"
    for word in words:
        assert word in fault.message


@pytest.mark.parametrize("name", ["{}", "training.{}"])
def test_fields_of_a_plateau_are_named_one_by_one(name: str) -> None:
    space = {
        name.format("plateau.stale"): 4,
        name.format("plateau.factor"): {"low": 0.1, "high": 0.9},
        name.format("plateau.restore"): {"options": [False, True]},
    }
    found = describe(study(space)).dimensions
    names = {one.name for one in found if one.name.startswith("training.plateau")}
    assert names == {"training.plateau.factor", "training.plateau.restore"}
    trial = SearchSpace(study(space)).draw(
        CornerSource(highest=True, choices={"training.plateau.restore": False})
    )
    assert trial.spec.training.plateau == Plateau(factor=0.9, stale=4, restore=False)
    assert trial.hyperparameters["training.plateau.stale"] == 4
    assert SearchSpace(study(space)).place(trial.spec) == trial


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("plateau.factor", 2, "less than 1"),
        ("plateau.restore", 3, "boolean"),
        ("plateau", None, "no candidate has 'training.plateau'"),
        ("patience", 0, "greater than or equal to 1"),
    ],
)
def test_what_no_plateau_can_be_is_refused_with_its_path(
    field: str, value: Any, words: str
) -> None:
    with pytest.raises(SpecRefused) as refused:
        describe(study({f"training.{field}": value}))
    [fault] = refused.value.faults
    assert fault.path == f"space.training.{field}"
    assert words in fault.message


def test_null_for_a_choice_of_a_model_is_refused() -> None:
    spec = study({"rnn.hidden_size": None})
    with pytest.raises(SpecRefused, match=r"space\.rnn\.hidden_size: .*integer, not None"):
        describe(spec)
