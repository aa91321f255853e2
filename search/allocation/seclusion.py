"""Machines that are kept free for one attempt, see Note [Sudden deaths]."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from typing import final

from search.agents.executors import Slot

_KEPT_SECONDS = 10.0
"""How long a machine is kept free for a study that does not ask again: it may have ended."""


@final
class Seclusion:
    """Says where nothing else may start: where an attempt is alone, or is about to be."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds and never goes back."""
        self._clock = clock
        self._wanted: dict[str, tuple[str, float]] = {}
        """Machine -> the study that it is kept free for, and when that asked last."""
        self._alone: dict[str, str] = {}
        """Machine -> the attempt that is alone there."""

    def begin(self, machine: str, attempt_id: str) -> None:
        """An attempt starts that has the machine for itself."""
        self._alone[machine] = attempt_id
        self._wanted.pop(machine, None)

    def keep(self, at_work: Collection[str]) -> None:
        """Open the machines again on which none of these attempts is alone."""
        self._alone = {
            machine: attempt_id
            for machine, attempt_id in self._alone.items()
            if attempt_id in at_work
        }

    def closed(self) -> Set[str]:
        """The machines where nothing else may start."""
        since = self._clock() - _KEPT_SECONDS
        self._wanted = {name: (by, at) for name, (by, at) in self._wanted.items() if at >= since}
        return self._alone.keys() | self._wanted.keys()

    def choose(self, study_id: str, slots: Sequence[Slot], used: Mapping[str, int]) -> Slot | None:
        """One of the slots whose machine has nothing on it.

        Where each has, the one with the least on it is kept free from here on, for as long as the
        study asks again; null meanwhile.

        Args:
            study_id: who asks.
            slots: those that would do.
            used: how many attempts are on each machine.
        """
        theirs = {name for name in self.closed() if self._wanted.get(name, ("",))[0] != study_id}
        open_slots = [slot for slot in slots if slot.machine not in theirs]
        if not open_slots:
            return None
        kept = [slot for slot in open_slots if slot.machine in self._wanted]
        best = min(kept or open_slots, key=lambda slot: used.get(slot.machine, 0))
        self._wanted[best.machine] = (study_id, self._clock())
        return None if used.get(best.machine) else best
