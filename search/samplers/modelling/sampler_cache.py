"""What was computed of trials, kept from one suggestion to the next.

See Note [SamplerCache] in `search/README.md`.
"""

from collections.abc import Callable
from typing import TypeVar, cast, final

from storage.records import TrialRecord

T = TypeVar("T")


@final
class SamplerCache:
    """What was computed of the trials of one study."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], tuple[TrialRecord, object]] = {}

    def of(self, trial: TrialRecord, what: str, compute: Callable[[TrialRecord], T]) -> T:
        """What follows from a record and the study alone, by the name of its computation."""
        known = self._known.get((what, trial.number))
        if known is None or known[0] is not trial:
            known = (trial, compute(trial))
            self._known[what, trial.number] = known
        return cast(T, known[1])


def is_settled(trial: TrialRecord) -> bool:
    """Whether what a trial told stays as it is."""
    return trial.state.has_ended and trial.told_at is not None
