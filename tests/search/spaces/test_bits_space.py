"""Bits as a dimension of a study, or as what the user names."""

from typing import Any

import pytest

from search.errors import SpecRefused
from search.spaces.dimension import ChoiceDimension
from search.spaces.draws import CornerSource
from search.spaces.space import SearchSpace, describe
from search.studies.spec import StudySpec
from search.studies.submission import checked_space
from search.training.trial_spec import TrainingSpec

DOCUMENT: dict[str, Any] = {
    "task": {"kind": "digits"},
    "architectures": ["gru", "rnn"],
    "parametrizations": ["dense", "low_rank"],
}
BITS = ChoiceDimension(name="model.bits", options=(32, 8, 4))


def study(**fields: Any) -> StudySpec:
    return StudySpec.model_validate({**DOCUMENT, **fields})


def test_models_have_32_bits_unless_a_study_says_otherwise() -> None:
    space = SearchSpace(study())
    assert "model.bits" not in space.dimensions
    drawn = space.draw(CornerSource(highest=True))
    assert drawn.spec.model.bits == 32
    assert "model.bits" not in drawn.hyperparameters
    assert "bits" not in drawn.spec.model.model_dump()


@pytest.mark.parametrize("name", ["bits", "model.bits"])
def test_options_are_a_dimension_beside_all_others(name: str) -> None:
    spec = study(space={name: {"options": [32, 8, 4]}})
    found = {dimension.name: dimension for dimension in describe(spec).dimensions}
    assert found.pop("model.bits") == BITS
    assert found == {dimension.name: dimension for dimension in describe(study()).dimensions}
    assert describe(spec).parameter_range == describe(study()).parameter_range
    for bits in (32, 8, 4):
        source = CornerSource(highest=False, choices={"model.bits": bits})
        drawn = SearchSpace(spec).draw(source)
        assert drawn.spec.model.bits == bits
        assert drawn.drawn["model.bits"] == drawn.hyperparameters["model.bits"] == bits
        placed = SearchSpace(spec).place(drawn.spec)
        assert placed is not None
        assert placed.drawn == drawn.drawn


def test_a_pin_is_no_dimension_and_is_shown() -> None:
    space = SearchSpace(study(space={"bits": 8, "quantised_epochs": {"low": 0, "high": 4}}))
    assert "model.bits" not in space.dimensions
    drawn = space.draw(CornerSource(highest=True))
    assert drawn.spec.model.bits == drawn.hyperparameters["model.bits"] == 8
    assert drawn.spec.training.quantised_epochs == 4
    assert drawn.hyperparameters["training.quantised_epochs"] == 4


def test_a_configuration_of_other_bits_is_not_in_the_space() -> None:
    of_eight = SearchSpace(study(space={"bits": 8})).draw(CornerSource(highest=True)).spec
    assert SearchSpace(study(space={"bits": {"options": [32, 8]}})).place(of_eight) is not None
    for space in ({}, {"bits": 4}, {"bits": {"options": [32, 4]}}):
        assert SearchSpace(study(space=space)).place(of_eight) is None


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (16, "one of 32, 8, 4, not 16"),
        (8.0, "one of 32, 8, 4, not 8.0"),
        (True, "one of 32, 8, 4, not True"),
        ("8", "one of 32, 8, 4, not '8'"),
        (None, "one of 32, 8, 4, not None"),
        # The ends of the options alone would be fine.
        ({"options": [32, 16, 8]}, "one of 32, 8, 4, not 16"),
        ({"options": [8, "many"]}, "one of 32, 8, 4, not 'many'"),
        ({"low": 4, "high": 32}, "one of 32, 8, 4; no range fits it"),
    ],
)
def test_other_bits_are_refused_at_their_path(value: object, words: str) -> None:
    for name in ("bits", "model.bits"):
        with pytest.raises(SpecRefused) as caught:
            checked_space(study(space={name: value}))
        (fault,) = caught.value.faults
        assert fault.path == f"space.{name}"
        assert words in fault.message


def test_quantised_epochs_are_a_number_of_epochs() -> None:
    assert TrainingSpec().quantised_epochs == 2
    for value in (-1, 1.5):
        with pytest.raises(SpecRefused) as caught:
            describe(study(space={"quantised_epochs": value}))
        assert [fault.path for fault in caught.value.faults] == ["space.quantised_epochs"]
