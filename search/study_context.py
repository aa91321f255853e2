"""What the parts of a running study share: its document, its space, and the floor it runs on."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from search.ask_times import AskTimes
from search.claim import ClaimedDatabase
from search.executors import Slot
from search.pareto import ObjectiveInfo, objective_infos
from search.space import SearchSpace
from search.spec import StudySpec
from search.wire import Job
from storage.engine import Database
from storage.measurements import Measurements
from storage.records import AttemptKind

GRACE_SECONDS = 2.0
"""How long the process of an attempt may go on after it was told to end."""


class Floor(Protocol):
    """Where attempts run: what a study needs of the coordinator that runs it."""

    database: Database
    asks: AskTimes
    """Where asks are timed."""

    def claimed(self, study_id: str) -> ClaimedDatabase:
        """The database for a study's own rows, as long as the study is claimed."""
        ...

    def slots(self, device: str, *, share: float = 0.0) -> Sequence[Slot]:
        """Every slot that serves a wish for `any`, `cpu` or `cuda`, and for a share of a device."""
        ...

    def free_slot(self, device: str, *, share: float = 0.0) -> Slot | None:
        """One of those with nothing on it."""
        ...

    def lane(self, device: str, model: str | None) -> Slot | None:
        """A measuring lane of a device model, or of the first one's that serves the wish."""
        ...

    def lane_is_free(self, lane: Slot) -> bool:
        """Whether nobody measures on this lane."""
        ...

    def in_background(self, study_id: str, work: Callable[[], None]) -> Future[None]:
        """Have a study's work done by a thread of its own; it has no more than one at a time."""
        ...

    def start(
        self, study_id: str, kind: AttemptKind, job: Job, *, trial: int | None, slot: Slot
    ) -> None:
        """Write the attempt's row, then start its process."""
        ...

    def is_at_work(self, attempt_id: str) -> bool:
        """Whether a process of this coordinator works on an attempt."""
        ...

    def cancel(self, attempt_id: str, *, grace_seconds: float = GRACE_SECONDS) -> None:
        """Tell an attempt's process to end, and kill it after the grace time."""
        ...


@dataclass
class StudyContext:
    """One study on one floor."""

    id: str
    spec: StudySpec
    """Its budget may change while the study runs, nothing else that attempts go by."""
    space: SearchSpace
    floor: Floor
    measured_on: str | None = None
    """The model that its first measurement was made on, or is to be."""

    @cached_property
    def database(self) -> ClaimedDatabase:
        """Where the study's rows are."""
        return self.floor.claimed(self.id)

    @cached_property
    def infos(self) -> tuple[ObjectiveInfo, ...]:
        """The study's objectives."""
        return objective_infos(self.spec.task, self.spec.objectives)

    @property
    def slots(self) -> Sequence[Slot]:
        """Every slot that its attempts may run on; machines come and go."""
        wish = self.spec.resources
        return self.floor.slots(wish.device, share=wish.fraction or 0.0)

    def free_slot(self) -> Slot | None:
        """One of them with nothing on it."""
        wish = self.spec.resources
        return self.floor.free_slot(wish.device, share=wish.fraction or 0.0)

    def lane(self) -> Slot | None:
        """Where its throughput is measured: on one model of device, so that all records compare.

        Null while no machine with that model is here.
        """
        device, named = self.spec.resources.device, self.spec.throughput.device
        lane = self.floor.lane(device, named or self.measured_on)
        if lane is None and named is None and self.measured_on is not None:
            with self.database.read() as session:
                self.measured_on = Measurements(session).first_device(self.id)
            lane = self.floor.lane(device, self.measured_on)
        if lane is not None and self.measured_on is None:
            with self.database.read() as session:
                self.measured_on = Measurements(session).first_device(self.id) or lane.model
            lane = self.floor.lane(device, named or self.measured_on)
        return lane
