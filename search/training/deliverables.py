"""What a trial stores beside its numbers, for the files that are made of them later."""

import json
from collections.abc import Mapping
from typing import Any, Final

from models.interface import Interface

LARGEST_INTERFACE: Final = 1 << 20
"""Bytes of an interface in a checkpoint's header, in which each one is escaped."""


def stored_interface(interface: Interface) -> str:
    """An interface as JSON; without the names of classes or labels where they take too much."""
    told = interface.model_dump_json()
    if len(json.dumps(told)) <= LARGEST_INTERFACE:
        return told
    unnamed = interface.answer.unnamed()
    return interface.model_copy(update={"answer": unnamed}).model_dump_json()


def prepared_interface(prepared: Mapping[str, Any] | None) -> Interface | None:
    """The interface that preparing a study's data found; None before that."""
    told = (prepared or {}).get("interface")
    return Interface.model_validate_json(told) if isinstance(told, str) else None
