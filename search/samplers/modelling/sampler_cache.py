"""What was computed of trials, kept from one suggestion to the next.

See Note [SamplerCache] in `search/README.md`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar, cast, final

from search.spaces import DrawnTrial, Scalar
from storage.records import TrialRecord

T = TypeVar("T")


@final
class SamplerCache:
    """What was computed of the trials of one study."""

    def __init__(self) -> None:
        self._known: dict[str, dict[int, tuple[TrialRecord, object]]] = {}
        self._series: tuple[Mapping[str, Scalar], list[DrawnTrial]] = {}, []

    def of(self, trial: TrialRecord, what: str, compute: Callable[[TrialRecord], T]) -> T:
        """What follows from a record and the study alone, by the name of its computation."""
        return self.of_all([trial], what, compute)[0]

    def of_all(
        self, trials: Sequence[TrialRecord], what: str, compute: Callable[[TrialRecord], T]
    ) -> list[T]:
        """The same of each trial; one loop for all, since of thousands each look-up counts."""
        known, found = self._known.setdefault(what, {}), list[object]()
        for trial in trials:
            kept = known.get(trial.number)
            if kept is None or kept[0] is not trial:
                kept = known[trial.number] = (trial, compute(trial))
            found.append(kept[1])
        return cast(list[T], found)

    def next_of_series(self, pins: Mapping[str, Scalar]) -> DrawnTrial | None:
        """What is to be suggested next of the shape that has these values; null: nothing is."""
        kept_pins, drawn = self._series
        return drawn.pop(0) if drawn and kept_pins == pins else None

    def keep_series(self, pins: Mapping[str, Scalar], drawn: Sequence[DrawnTrial]) -> None:
        """Have these suggested one after the other, as long as that shape is asked for."""
        self._series = pins, [*drawn]


def is_settled(trial: TrialRecord) -> bool:
    """Whether what a trial told stays as it is."""
    return trial.state.has_ended and trial.told_at is not None
