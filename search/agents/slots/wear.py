"""For how many jobs a slot's process is good."""

import gc
from typing import Final, final

from search.linux import resident_bytes
from search.training.jobs import OUT_OF_MEMORY, Completion

MOST_JOBS: Final = 64
"""How many jobs one process does."""
MOST_GROWTH_BYTES: Final = 256 << 20
"""How much larger it may have become since its first job, or its first stack."""


@final
class Wear:
    """What the jobs of a process have done to it."""

    def __init__(self) -> None:
        self._begun = 0
        self._first_bytes = 0
        self._has_seen_trouble = False

    @property
    def takes_more(self) -> bool:
        """Whether it is good for a further job, as far as is known while others are underway."""
        return not self._has_seen_trouble and self._begun < MOST_JOBS

    def begin(self) -> None:
        """Count a job."""
        self._begun += 1

    def end(self, completion: Completion, *, was_last: bool) -> None:
        """Take note of how a job ended; `was_last`: none is underway beside it."""
        is_short = (completion.reason or "").startswith(OUT_OF_MEMORY)
        if completion.outcome == "failed" or is_short:
            self._has_seen_trouble = True
        # Those who are there take what they need; what counts is what they leave behind.
        if was_last and self.takes_more:
            self._has_seen_trouble = self._has_grown()

    def _has_grown(self) -> bool:
        now = resident_bytes()
        self._first_bytes = self._first_bytes or now
        if now - self._first_bytes <= MOST_GROWTH_BYTES:
            return False
        gc.collect()
        return resident_bytes() - self._first_bytes > MOST_GROWTH_BYTES
