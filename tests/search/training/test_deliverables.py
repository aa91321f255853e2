"""What a trial stores for the files that are made of it later."""

import json

from models.interface import Classes, Interface
from search.tasks import Digits
from search.training.deliverables import LARGEST_INTERFACE, onnx_metadata, stored_interface


def named(count: int, name: str) -> Interface:
    classes = tuple(f"{name}{number}" for number in range(count))
    return Interface(sample=("steps", 2), answer=Classes(classes=classes), metric="accuracy")


def test_an_interface_is_stored_with_its_names() -> None:
    interface = named(100, "für ")
    assert Interface.model_validate_json(stored_interface(interface)) == interface


def test_names_that_would_fill_a_header_are_left_out() -> None:
    interface = named(4000, "ü" * 100)
    stored = stored_interface(interface)
    assert len(json.dumps(stored)) < LARGEST_INTERFACE
    assert Interface.model_validate_json(stored) == interface.model_copy(
        update={"answer": Classes(classes=())}
    )


def test_metadata_are_as_wide_whatever_was_compared() -> None:
    """A file's size is known before it is: without the samples that it will be compared on."""
    told = [onnx_metadata(Digits(), "f" * 64, compared=count) for count in (0, 7, 4096)]
    assert {len(one["reflectory.verified"]) for one in told} == {17}
    assert [one["reflectory.verified"].split() for one in told] == [
        ["random", "000000"],
        ["validation", "000007"],
        ["validation", "004096"],
    ]
