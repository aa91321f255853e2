"""Attempts that follow others on their slots: Note [Booked ahead] in `search/README.md`."""

import math
import time
from collections.abc import Mapping, Sequence, Set
from typing import Final, final

from search.allocation.occupancy import Occupant, Place

_SOON_SECONDS: Final = 10.0
"""Where a study's attempts take no longer the next one is at its machine before a slot is free."""


@final
class BookedAhead:
    """Knows by slot which attempt follows, and by study how long attempts that train take."""

    def __init__(self) -> None:
        self.is_allowed = False
        """Whether nobody else may want a slot first."""
        self._next: dict[Place, tuple[Occupant, float]] = {}
        """By place the attempt that follows the one there, and when it was booked."""
        self._begun_at: dict[str, float] = {}
        self._lasted: dict[str, float] = {}
        """By study of ours, in seconds, newer attempts counting more; infinite at first."""

    @property
    def places(self) -> Mapping[Place, Occupant]:
        """What is booked, by place."""
        return {place: occupant for place, (occupant, _) in self._next.items()}

    def ends_soon(self, study_id: str) -> bool:
        """Whether a slot on which the study's attempts train is about to be free."""
        return self.is_allowed and self._lasted.get(study_id, math.inf) <= _SOON_SECONDS

    def book(self, place: Place, occupant: Occupant) -> None:
        """Have an attempt follow the one that is on a place."""
        self._next[place] = occupant, time.monotonic()

    def drop(self, attempts: Set[str]) -> None:
        """Some attempts ended that had not begun."""
        self._next = {
            place: one for place, one in self._next.items() if one[0].attempt_id not in attempts
        }

    def begin_next(self, place: Place) -> Occupant | None:
        """A place is free; returns the attempt that has it from here on, if one was booked."""
        occupant, _ = self._next.pop(place, (None, 0.0))
        if occupant is not None:
            self.note_begun(occupant.attempt_id)
        return occupant

    def note_study(self, study_id: str) -> None:
        """A study is ours, and has an attempt that trains."""
        self._lasted.setdefault(study_id, math.inf)

    def note_begun(self, attempt_id: str) -> None:
        """An attempt has a slot."""
        self._begun_at[attempt_id] = time.monotonic()

    def note_ended(self, attempt_id: str, study_id: str | None) -> None:
        """An attempt's slot is free; it trained a trial of that study (null: it did not train)."""
        begun_at = self._begun_at.pop(attempt_id, None)
        if study_id in self._lasted and begun_at is not None:
            lasted, before = time.monotonic() - begun_at, self._lasted[study_id]
            self._lasted[study_id] = lasted if math.isinf(before) else (before + lasted) / 2

    def overdue(self) -> Sequence[str]:
        """Attempts that wait for slots which were to be free by now."""
        since = time.monotonic() - 2 * _SOON_SECONDS
        return [one.attempt_id for one, booked_at in self._next.values() if booked_at < since]

    def forget(self, study_id: str) -> None:
        """A study is not ours any more."""
        self._lasted.pop(study_id, None)
