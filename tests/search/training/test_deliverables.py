"""What a trial stores for the files that are made of it later."""

import json

from models.interface import Classes, Interface
from search.training.deliverables import LARGEST_INTERFACE, stored_interface


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
