"""Studies whose work has met an error that nobody foresaw."""

import time
from collections.abc import Callable

_FIRST_SECONDS, _MOST_SECONDS = 1.0, 600.0
"""How long a study is left alone after its first error, and at most."""


class FaultyStudies:
    """Leaves each alone for a while, twice as long after each error.

    One study must not stop all others: its error would come again whenever a coordinator begins
    with it. Its trials stay as they are, and it goes on once the error is gone.

    See Note [Faulty studies] in `search/README.md`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}
        self._seconds: dict[str, float] = {}

    def note(self, study_id: str) -> float:
        """Take note of an error; returns for how many seconds the study is left alone."""
        now = self._clock()
        # What ran well for longer than the longest pause begins anew.
        went_well = now - self._until.get(study_id, now) > _MOST_SECONDS
        before = 0.0 if went_well else self._seconds.get(study_id, 0.0)
        seconds = min(_MOST_SECONDS, 2 * before) or _FIRST_SECONDS
        self._seconds[study_id], self._until[study_id] = seconds, now + seconds
        return seconds

    def is_left_alone(self, study_id: str) -> bool:
        """Whether its time has not come yet."""
        return self._clock() < self._until.get(study_id, 0.0)

    def forget(self, study_id: str) -> None:
        """It has ended."""
        self._until.pop(study_id, None)
        self._seconds.pop(study_id, None)
