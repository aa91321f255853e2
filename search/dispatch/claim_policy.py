"""Which studies a coordinator takes: those that its slots serve, or that nobody's slots serve.

Where machines come and go, and coordinators share a database, a study may wait: for the coordinator
that has slots for it, or for a machine that joins. One that nobody serves for too long is taken all
the same, and fails with the reason.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeAlias, final

from sqlalchemy.orm import Session

from search.agents.executors import Slot
from search.dispatch.coordinator_report import CLAIM_LEASES
from search.studies import Resources, Throughput, enter, is_of_kind, measured_kind
from storage.endings import StudyCause
from storage.engine import Database
from storage.fleet.coordinators import Coordinators, SlotRecord
from storage.records import StudyRecord, StudyState
from storage.repositories.studies import Studies

Place: TypeAlias = Slot | SlotRecord
"""A slot, one's own or another coordinator's."""

_ASK_FOR_SLOTS: Final = (StudyState.QUEUED, StudyState.RUNNING)
_BACK_SECONDS: Final = 5.0
"""A machine that is started again is back within them."""


@dataclass(frozen=True)
class Capacity:
    """The slots and measuring slots that a coordinator has."""

    slots: Sequence[Place]
    measuring_slots: Sequence[Place]


def can_run(study: StudyRecord, space: Capacity) -> bool:
    """Whether a slot serves the study's trials, and a measuring slot has the model it names."""
    wish = Resources.model_validate(study.spec["resources"])
    throughput = Throughput.model_validate(study.spec["throughput"])
    kind, model = measured_kind(throughput, wish), throughput.device
    measuring = (slot for slot in space.measuring_slots if is_of_kind(slot.device, kind))
    return any(wish.admits(slot.device, slot.share) for slot in space.slots) and any(
        (model is None or slot.model == model) and (slot.compiles or not throughput.compiles)
        for slot in measuring
    )


def others(session: Session, *, owner: str, lease_seconds: float) -> list[Capacity]:
    """What the other coordinators have that were seen lately."""
    within = CLAIM_LEASES * lease_seconds
    living = Coordinators(session).alive(datetime.now(UTC), within_seconds=within)
    return [Capacity(one.slots, one.measuring_slots) for one in living if one.owner != owner]


def places_for(session: Session, wish: Resources, *, lease_seconds: float) -> list[SlotRecord]:
    """The slots that serve a wish, of all coordinators that were seen lately."""
    within = CLAIM_LEASES * lease_seconds
    living = Coordinators(session).alive(datetime.now(UTC), within_seconds=within)
    return [slot for one in living for slot in one.slots if wish.admits(slot.device, slot.share)]


@final
class Choosing:
    """Says which studies to leave alone, of those that this coordinator's slots do not serve."""

    def __init__(
        self,
        wait_seconds: float,
        *,
        join_seconds: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`wait_seconds` is how long a study may wait that nobody serves.

        From now on the first machine may take `join_seconds` to join, and nobody's time runs while
        there is none.
        """
        self._wait_seconds = wait_seconds
        self._clock = clock
        self._joined_by = clock() + join_seconds
        self._unserved: dict[str, float] = {}

    def is_waiting(self) -> bool:
        """Whether some wait for slots may come to its end by the clock alone."""
        return bool(self._unserved) or self._clock() < self._joined_by

    def leaves(
        self,
        study: StudyRecord,
        ours: Capacity,
        theirs: Iterable[Capacity],
        *,
        is_at_work: bool,
    ) -> bool:
        """Whether another coordinator is to take the study, or nobody as yet.

        One that we work on already (`is_at_work`) is left to nobody but another coordinator.
        """
        asks_for_slots = study.state in _ASK_FOR_SLOTS and study.ending is None
        if not asks_for_slots or can_run(study, ours):
            self._unserved.pop(study.id, None)
            return False
        if any(can_run(study, space) for space in theirs):
            self._unserved.pop(study.id, None)
            return True
        if not ours.slots and not is_at_work and self._clock() < self._joined_by:
            return True
        since = self._unserved.setdefault(study.id, self._clock())
        return not is_at_work and self._clock() - since < self._wait_seconds

    def says_it_waits(self, study: StudyRecord, *, is_at_work: bool) -> bool:
        """Whether the user is to read that nobody has a slot for the study.

        Of one that has begun only after some seconds, for its machines may just be started again.
        """
        if study.state is StudyState.QUEUED and not is_at_work:
            return True
        since = self._unserved.get(study.id)
        if since is None:
            return False
        return study.state_cause is StudyCause.NO_SLOT or self._clock() - since >= _BACK_SECONDS


def say_whether_it_waits(database: Database, study: StudyRecord, *, waits: bool) -> None:
    """Say once what a study waits for that no slot serves, and once that it waits no longer."""
    is_said = study.state_cause is StudyCause.NO_SLOT
    if study.state not in _ASK_FOR_SLOTS or waits is is_said:
        return
    cause, detail = (StudyCause.NO_SLOT, _wanted(study)) if waits else (None, None)
    with database.write() as session:
        now = Studies(session).get(study.id)
        if (now.state, now.state_cause) == (study.state, study.state_cause):
            enter(session, study.id, now.state, at=datetime.now(UTC), cause=cause, detail=detail)


def _wanted(study: StudyRecord) -> str:
    """What a slot has to have, in the names of the study's document."""
    wish = Resources.model_validate(study.spec["resources"])
    throughput = Throughput.model_validate(study.spec["throughput"])
    model = throughput.device
    wanted = [f"resources.device {wish.device!r}"]
    if wish.fraction is not None:
        wanted.append(f"resources.fraction {wish.fraction:g}")
    if model is not None:
        wanted.append(f"throughput.device {model!r}")
    if throughput.compiles or measured_kind(throughput, wish) != wish.device:
        wanted.append(f"throughput.runtime {throughput.runtime!r}")
    return " and ".join(wanted)
