"""What the parts of a running study share: its document, its space, and its dispatcher."""

from collections.abc import Callable, Sequence, Set
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Protocol

from sqlalchemy.orm import Session

from models.interface import Interface
from search.agents.executors import Slot
from search.allocation import Allocator, StackGroup
from search.fronts import ObjectiveInfo, objective_infos
from search.graphs.offered_layers import OfferedLayers
from search.running.ask_times import AskTimes
from search.running.claim import ClaimedDatabase
from search.running.known_trials import KnownTrials
from search.spaces import AnySpace
from search.studies import Need, StudySpec, measured_kind, space_of
from search.training.deliverables import prepared_interface
from search.training.jobs import Job, TrainJob
from search.training.stacks.key import stack_key
from storage.engine import Database
from storage.records import LOCAL, AttemptKind, AttemptRecord, CommandKind, StudyRecord
from storage.repositories.measurements import Measurements
from storage.repositories.studies import Studies

GRACE_SECONDS = 2.0
"""How long the process of an attempt may go on after it was told to end."""


class Dispatcher(Protocol):
    """Where attempts run: what a study needs of the coordinator that runs it."""

    database: Database
    asks: AskTimes
    """Where asks are timed."""
    allocator: Allocator
    """Which slots there are, and what is on them."""

    def claimed(self, study_id: str) -> ClaimedDatabase:
        """The database for a study's own rows, as long as the study is claimed."""
        ...

    def known_trials(self, study_id: str) -> KnownTrials:
        """The trials of a claimed study."""
        ...

    def in_background(self, study_id: str, work: Callable[[], bool]) -> Future[None]:
        """Have a study's work done by a thread of its own; it has no more than one at a time.

        Work that returns true gave way to another tenant's, and is called again in its turn.
        """
        ...

    def should_give_way(self, study_id: str) -> bool:
        """Whether a study's work in the background keeps another tenant's waiting."""
        ...

    def may_queue(self, study_id: str) -> bool:
        """Whether the study's tenant may have more trials wait."""
        ...

    def may_begin(self, study_id: str) -> bool:
        """Whether the study's collection, where it is of one, has a trial left to begin."""
        ...

    def has_a_moment(self, study_id: str) -> bool:
        """Whether the round may wait a moment for the study's sampler."""
        ...

    def start(
        self,
        study_id: str,
        kind: AttemptKind,
        job: Job,
        *,
        trial: int | None,
        slot: Slot,
        alone: bool = False,
        ahead: bool = False,
        together: StackGroup | None = None,
        need: Need | None = None,
        also: Callable[[Session], None] | None = None,
    ) -> None:
        """Write the attempt's row, then start its process; `alone`: nothing else runs with it.

        `together`: it may be trained with those of the same key, as long as the memory suffices for
        its `need` and theirs.

        `ahead`: it begins when the attempt that its slot has is over. `also` is done in the
        transaction that writes the row.
        """
        ...

    def adopt(
        self, attempt: AttemptRecord, *, tenant: str, together: StackGroup | None = None
    ) -> bool:
        """Take over an attempt that goes on without the coordinator that began it."""
        ...

    def died_under(self, attempt: AttemptRecord) -> bool:
        """Whether it was at work under a coordinator before this one, which was killed."""
        ...

    def cancel(self, attempt_id: str, *, grace_seconds: float = GRACE_SECONDS) -> None:
        """Tell an attempt's process to end, and kill it after the grace time."""
        ...


@dataclass(frozen=True)
class Look:
    """What the coordinator saw of a study in one read; equal ones mean that nothing changed."""

    study: StudyRecord
    data_version: int
    """As the study's, by which records do not compare."""
    asked: Set[CommandKind] = frozenset()
    """What users have asked of it that is not done yet."""


@dataclass
class StudyContext:
    """One study on one dispatcher."""

    id: str
    spec: StudySpec
    """Its budget may change while the study runs, nothing else that attempts go by."""
    dispatcher: Dispatcher
    tenant: str = LOCAL
    measured_on: str | None = None
    """The model that its first measurement was made on, or is to be."""
    front_is_settled: bool = False
    """Whether the search is over, and all is measured that may be on its front."""
    search_is_over: bool = False
    """Whether its budget of epochs leaves no training of anything to its end."""
    _interface: Interface | None = None
    space: AnySpace = field(init=False)
    database: ClaimedDatabase = field(init=False)
    """Where the study's rows are."""
    trials: KnownTrials = field(init=False)
    """The study's trials, in memory."""
    allocator: Allocator = field(init=False)

    def __post_init__(self) -> None:
        """Hold what belongs to this claim: work in the background may outlive it."""
        self.database = self.dispatcher.claimed(self.id)
        self.trials = self.dispatcher.known_trials(self.id)
        self.allocator = self.dispatcher.allocator
        self.space = space_of(self.spec, offered=self.offered)

    @cached_property
    def infos(self) -> tuple[ObjectiveInfo, ...]:
        """The study's objectives."""
        return objective_infos(self.spec.task, self.spec.objectives)

    @property
    def interface(self) -> Interface | None:
        """What stands around its models, once its data were prepared."""
        if self._interface is None:
            with self.database.read() as session:
                prepared = Studies(session).get(self.id).prepared
            self._interface = prepared_interface(prepared)
        return self._interface

    def offered(self) -> OfferedLayers | None:
        """What may be picked for a network's layers, once they were fitted."""
        with self.database.read() as session:
            prepared = Studies(session).get(self.id).prepared
        offers = (prepared or {}).get("offers")
        return OfferedLayers.decoded(offers) if isinstance(offers, str) else None

    @property
    def slots(self) -> Sequence[Slot]:
        """Every slot that its attempts may run on; machines come and go."""
        return self.allocator.slots(self.spec.resources)

    def free_slot(self, need: Need | None = None) -> Slot | None:
        """One of them with nothing on it, and with memory enough for a need."""
        return self.allocator.free_slot(self.tenant, self.spec.resources, need)

    def together(self, job: Job) -> StackGroup | None:
        """With which trials a job's may be trained; null: with none."""
        most = self.spec.resources.most_together
        if most == 1 or not isinstance(job, TrainJob):
            return None
        return StackGroup(self.id, stack_key(job), most)

    @property
    def places(self) -> int:
        """How many of its trials may train at once: on each slot as many as in a stack."""
        return max(1, len(self.slots)) * self.spec.resources.most_together

    @property
    def free_slots(self) -> int:
        """How many of them have nothing on them."""
        return self.allocator.free_slots(self.spec.resources)

    def stack_place(
        self, together: StackGroup | None, need: Need | None = None, *, is_passing: bool = False
    ) -> Slot | None:
        """A place on a slot beside what a trial may be trained with, and memory for its need."""
        if together is None:
            return None
        wish = self.spec.resources
        return self.allocator.stack_place(together, wish, need, is_passing=is_passing)

    def slot_ahead(
        self, need: Need | None = None, together: StackGroup | None = None
    ) -> Slot | None:
        """One of them whose attempt is about to end, with memory enough for a need."""
        return self.allocator.slot_ahead(self.id, self.spec.resources, need, together)

    def lone_slot(self, need: Need) -> Slot | None:
        """One of them on a machine that is kept free for it; null while something runs there."""
        return self.allocator.lone_slot(self.id, self.spec.resources, need)

    def attended(self) -> Set[int]:
        """The numbers of its trials that an attempt trains now."""
        return self.allocator.attended(self.id)

    def measuring_slot(self) -> Slot | None:
        """Where its throughput is measured: on one model of device, so that all records compare.

        Null while no machine with that model is here.
        """
        named = self.spec.throughput.device
        find = partial(
            self.allocator.measuring_slot,
            measured_kind(self.spec.throughput, self.spec.resources),
            compiles=self.spec.throughput.compiles,
        )
        slot = find(named or self.measured_on)
        if slot is None and named is None and self.measured_on is not None:
            with self.database.read() as session:
                self.measured_on = Measurements(session).first_device(self.id)
            slot = find(self.measured_on)
        if slot is not None and self.measured_on is None:
            with self.database.read() as session:
                self.measured_on = Measurements(session).first_device(self.id) or slot.model
            slot = find(named or self.measured_on)
        return slot
