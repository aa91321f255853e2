"""Several executors as one: whose slot it is decides who runs an attempt."""

import time
from collections.abc import Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, final

from sqlalchemy.orm import Session

from search.agents.executor import AttemptTicket, Executor, Exit, Slot
from search.errors import ExecutorError

_TURN_SECONDS = 0.05
"""How long `poll` waits for one executor before it asks the others."""


@final
class SeveralExecutors:
    """Joins executors; each has slots of names, or of machines, that no other has."""

    def __init__(self, *executors: Executor) -> None:
        """The first is the one that `poll` waits for, so that it should be the quickest."""
        self._executors = executors
        self._of_machine: dict[str, Executor] = {}
        self._of_attempt: dict[str, Executor] = {}

    def capacity(self) -> Sequence[Slot]:
        """Return the slots of all of them."""
        found: list[Slot] = []
        for executor in self._executors:
            slots = executor.capacity()
            # A machine that went keeps its executor: what runs there is still to be ended.
            self._of_machine |= {slot.machine: executor for slot in slots}
            found += slots
        return found

    def reserve(self, attempt_id: str, slot: Slot) -> bool:
        """Have the slot's own executor keep it."""
        executor = self._of_machine.get(slot.machine)
        return executor is not None and executor.reserve(attempt_id, slot)

    def book(self, session: Session, ticket: AttemptTicket, slot: Slot) -> bool:
        """Have the slot's own executor take it."""
        executor = self._of_machine.get(slot.machine)
        return executor is not None and executor.book(session, ticket, slot)

    def adopt(self, attempt_id: str) -> bool:
        """Have whichever has it take it over."""
        for executor in self._executors:
            if executor.adopt(attempt_id):
                self._of_attempt[attempt_id] = executor
                return True
        return False

    def keeps(self, attempt_id: str) -> bool:
        """Whether the attempt's own executor does."""
        executor = self._of_attempt.get(attempt_id)
        return executor is not None and executor.keeps(attempt_id)

    def start(self, ticket: AttemptTicket, slot: Slot) -> None:
        """Have the slot's own executor start the attempt.

        Raises:
            ExecutorError: it does not, or no executor has such a slot.
        """
        executor = self._of_machine.get(slot.machine)
        if executor is None:
            raise ExecutorError(f"slot {slot.name!r} is on no machine that is here")
        executor.start(ticket, slot)
        self._of_attempt[ticket.attempt_id] = executor

    def cancel(self, attempt_id: str, grace_seconds: float) -> None:
        """Have the attempt's executor end it; one that was started elsewhere concerns them all."""
        executor = self._of_attempt.get(attempt_id)
        for one in self._executors if executor is None else (executor,):
            one.cancel(attempt_id, grace_seconds)

    def unheard(self) -> Set[str]:
        """Return those of all of them."""
        return {one for executor in self._executors for one in executor.unheard()}

    def poll(self, timeout_seconds: float) -> Sequence[Exit]:
        """Return what ended anywhere since the last call."""
        deadline = time.monotonic() + timeout_seconds
        while True:
            left = max(0.0, deadline - time.monotonic())
            first, *others = self._executors
            exits = [*first.poll(min(left, _TURN_SECONDS))]
            for executor in others:
                exits += executor.poll(0.0)
            for ended in exits:
                self._of_attempt.pop(ended.attempt_id, None)
            if exits or left <= _TURN_SECONDS:
                return exits

    def log_path(self, attempt_id: str) -> Path:
        """Name the file of the attempt's own executor, or where the first would have it."""
        return self._of_attempt.get(attempt_id, self._executors[0]).log_path(attempt_id)

    def close(self) -> None:
        """Close them all."""
        for executor in self._executors:
            executor.close()


if TYPE_CHECKING:
    _conforms: type[Executor] = SeveralExecutors
