"""Events of a study's stream; `payloads` has what each kind of them tells."""

from typing import Any

from models.spec import Spec


class Event(Spec):
    """One thing that happened in a study; numbers count from 1 without gaps."""

    number: int
    kind: str
    payload: dict[str, Any]
