"""The coordinator: the only process that asks and tells Optuna, and the one that starts attempts.

It may die at any point. Started again, it makes Optuna's studies of our rows, declares the attempts
of its former self lost, and goes on.
"""

import logging
import math
import platform
import threading
import time
from collections.abc import Callable, Generator, Hashable, Sequence, Set
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from optuna.exceptions import StorageInternalError
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from search.agents.executors import AttemptTicket, Executor, Exit, Slot
from search.agents.renewal_watch import RenewalWatch
from search.allocation import (
    Allocator,
    Occupant,
    StackGroup,
    TenantShares,
    in_turn,
    interleaved,
    next_turn,
    take_turns,
)
from search.collections import CollectionBudgets
from search.dispatch.claim_policy import Capacity, Choosing, others, say_whether_it_waits
from search.dispatch.coordinator_report import CoordinatorReport
from search.dispatch.fair_threads import FairThreads
from search.dispatch.faulty_studies import FaultyStudies
from search.dispatch.runs.remeasuring import MeasuringRun, ended_studies_to_measure
from search.dispatch.runs.study_run import StudyRun
from search.dispatch.starts import Start, Starts
from search.dispatch.study_claims import StudyClaims
from search.dispatch.study_looks import StudyLooks
from search.errors import ExecutorError
from search.logs import LogFormat, bound
from search.measuring.measurement_lock import lock_folder
from search.optuna_tables import shared_storage
from search.running import GRACE_SECONDS, AskTimes, ClaimedDatabase, KnownTrials
from search.studies import Need, forget_deleted, in_progress
from search.training.jobs import MEASURE_JOBS, Job
from storage.accounts.quotas import Quotas
from storage.endings import AttemptCause
from storage.engine import Database
from storage.errors import ClaimLost, Conflict, DatabaseUnavailable, NotFound
from storage.records import AttemptKind, AttemptRecord, StudyRecord
from storage.repositories.attempts import Attempts

_log = logging.getLogger(__name__)

_PAUSE_SECONDS = 0.2
"""How long a round waits at most for something to be written: some things are due by the clock."""

_KEEP_SECONDS = 1.0
"""How often claims are renewed and new studies looked for, unless leases are very short."""

_AWAY_SECONDS = 1.0
"""How long it is left alone then."""

_THREADS = 4
"""How many studies exchange with Optuna at once: samplers share one interpreter in any case."""

_NOT_RENEWED = datetime(1970, 1, 1, tzinfo=UTC)
"""The lease of a process whose attempt is over, for `RenewalWatch`: nobody renews it."""


@dataclass(frozen=True, kw_only=True)
class Folders:
    """Where attempts find what does not go over HTTP."""

    data: Path | None
    """The user's own data files."""
    cache: Path
    """Downloaded and decoded data."""
    locks: Path
    """Lock files of the measurement locks, one folder per device."""
    alive: Path
    """A file that the coordinator touches every round, for `/readyz`."""


class Coordinator:
    """Runs every study that it can claim, until it is stopped."""

    def __init__(
        self,
        database: Database,
        executor: Executor,
        *,
        optuna_url: str | None,
        owner: str,
        folders: Folders,
        lease_seconds: float,
        slot_wait_seconds: float = 0.0,
        join_seconds: float = 0.0,
        log_format: LogFormat = "text",
        ended: Callable[[str], None] | None = None,
    ) -> None:
        """`ended` is called with each study of ours that is over; attempts log in `log_format`.

        Studies that no slot serves wait for `slot_wait_seconds` before they fail, and at first for
        up to `join_seconds` until there is any slot.
        """
        self.database = database
        self.asks = AskTimes()
        self._tenants = TenantShares()
        self.allocator = Allocator(self._tenants)
        self.allocator.update(executor.capacity())
        self._executor = executor
        self._copies = None if optuna_url is None else shared_storage(optuna_url)
        self._owner = owner
        self._folders = folders
        self._lease_seconds = lease_seconds
        self._log_format: LogFormat = log_format
        self._ended = ended
        self._runs: dict[str, StudyRun | MeasuringRun] = {}
        self._known: dict[str, KnownTrials] = {}
        """The trials of the studies that are ours."""
        self._served: set[str] = set()
        self._stepped: set[str] = set()
        self._former_was_killed: bool | None = None
        self._looks = StudyLooks(database)
        self._claims = StudyClaims(database, owner=owner, lease_seconds=lease_seconds)
        self._faulty = FaultyStudies()
        self._report = CoordinatorReport(
            owner=owner, lock_files=folders.locks, beat_seconds=lease_seconds / 4
        )
        self._attempts_watch = RenewalWatch(lease_seconds)
        self._lingering_watch = RenewalWatch(lease_seconds)
        self._lingering: Set[str] = frozenset()
        self._kept_at = self._read_at = -math.inf
        """When `_keep` was last done, and when it last read rows: by `time.monotonic`."""
        self._read: Hashable | None = None
        """What was committed then."""
        self._choosing = Choosing(slot_wait_seconds, join_seconds=join_seconds)
        self._away = False
        self._threads = FairThreads(_THREADS, name="exchange", weight=self._weight)
        self._starts = Starts(database, executor, owner=owner, lease_seconds=lease_seconds)
        self._collections = CollectionBudgets(database)
        self._in_background: dict[str, Future[None]] = {}
        self._done = False
        """Whether work in the background is done that no round has seen."""

    def run(self, stop: threading.Event) -> None:
        """Work until `stop` is set.

        What runs then is ended with the executor and goes on at the next start. While the database
        does not answer nothing is begun, and what runs goes on for as long as its leases hold.
        """
        for folder in (self._folders.cache, self._folders.locks):
            folder.mkdir(parents=True, exist_ok=True)
        try:
            while not stop.is_set():
                try:
                    self.round()
                except DatabaseUnavailable as error:
                    self._without_database(error)
                    stop.wait(_AWAY_SECONDS)
        finally:
            self._say_that_it_stops()
            self._executor.close()
            gone = {one for one in self.allocator.at_work if not self._executor.keeps(one)}
            self.allocator.free(gone)
            for run in self._runs.values():
                run.halt()
            self._threads.shutdown()
            self._looks.close()
            try:
                self._give_up()
            except DatabaseUnavailable as error:
                # The next coordinator finds the same.
                _log.error("studies are left claimed", extra={"reason": _first_line(error)})

    def round(self) -> None:
        """Notice what ended, keep the claims, and let each study do what is due."""
        ended = self._wait(_PAUSE_SECONDS)
        self.allocator.begin_round({exited.attempt_id for exited in ended})
        for exited in ended:
            self._notice(exited)
        self._keep()
        self._look()
        priorities = {study_id: run.priority for study_id, run in self._runs.items()}
        tenants = {study_id: run.tenant for study_id, run in self._runs.items()}
        self._tenants.begin_round(tenants.values())
        self._stepped.clear()
        take_turns(in_turn(priorities), tenants=tenants, rank=self._tenants.rank, visit=self._visit)
        self._write_starts()
        order = next_turn(priorities, served=self._served)
        self._runs = {one: self._runs[one] for one in order if one in self._runs}
        self._served.clear()
        if self._away:
            self._away = False
            _log.info("the database answers again")

    def claimed(self, study_id: str) -> ClaimedDatabase:
        """The database for the rows of a study of ours, see Note [Late coordinators]."""
        known = self.known_trials(study_id)
        return ClaimedDatabase(self.database, study_id, owner=self._owner, wrote=known.note_write)

    def known_trials(self, study_id: str) -> KnownTrials:
        """The trials of a study of ours, in memory."""
        return self._known[study_id]

    def adopt(
        self, attempt: AttemptRecord, *, tenant: str, together: StackGroup | None = None
    ) -> bool:
        """Take over an attempt that goes on without the coordinator that began it."""
        number = self._executor.adopt(attempt.id)
        if number is None:
            return False
        trial = attempt.trial if attempt.kind is AttemptKind.TRAIN else None
        self.allocator.adopt(
            attempt.slot,
            number,
            Occupant(attempt.id, together, need=None),
            tenant=tenant,
            trains=None if trial is None else (attempt.study_id, trial),
            is_measuring=attempt.slot_share == 0,
        )
        _log.info("an attempt is taken over", extra={"attempt_id": attempt.id})
        return True

    def died_under(self, attempt: AttemptRecord) -> bool:
        """Whether it was at work under a coordinator before this one, which was killed.

        What had not begun to work can have killed nobody, and what ran elsewhere neither.
        """
        if not self._former_was_killed or attempt.machine != platform.node():
            return False
        log = self._executor.log_path(attempt.id)
        has_begun = log.exists() and log.stat().st_size > 0
        return has_begun and attempt.started_at < self._report.started_at

    def in_background(self, study_id: str, work: Callable[[], bool]) -> Future[None]:
        """Have a study's work done by a thread of its own; it has no more than one at a time.

        Work that returns true gave way to another tenant's, and is called again in its turn.
        """
        future = self._threads.submit(self._runs[study_id].tenant, partial(_about, study_id, work))
        self._in_background[study_id] = future
        future.add_done_callback(self._wake)
        return future

    def _wake(self, _done: Future[None]) -> None:
        self._done = True
        self._looks.wake()

    def should_give_way(self, study_id: str) -> bool:
        """Whether a study's work in the background keeps another tenant's waiting."""
        run = self._runs.get(study_id)
        return run is not None and self._threads.should_give_way(run.tenant)

    def may_queue(self, study_id: str) -> bool:
        """Whether the study's tenant may have more trials wait."""
        run = self._runs.get(study_id)
        if run is None or self._tenants.may_queue(run.tenant):
            return True
        with self.database.read() as session:
            return not Quotas(session).is_full("queued_trials", run.tenant)

    def may_begin(self, study_id: str) -> bool:
        """Whether the study's collection, where it is of one, has a trial left to begin."""
        return self._collections.may_begin(study_id)

    def has_a_moment(self, study_id: str) -> bool:
        """Whether the round may wait a moment for the study's sampler."""
        return self._tenants.has_a_moment(self._runs[study_id].tenant)

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
        """Have an attempt's row written with this round's others, then its process started.

        `alone`: nothing else runs with it; `ahead`: see `Allocator.slot_ahead`; `together` and
        `need`: see `Allocator.stack_place`. `also` is done in the transaction that writes the row.

        A process that cannot start is a lost attempt. Nothing begins on a slot that another
        coordinator took meanwhile, or while the tenant has as many as it may have, here or
        from other coordinators.
        """
        tenant, is_measuring = self._runs[study_id].tenant, slot.share == 0
        joins = slot.name in self.allocator.taken
        start = Start(
            study_id=study_id,
            tenant=tenant,
            kind=kind,
            job=job,
            trial=trial,
            slot=slot,
            ticket=partial(
                self._ticket, job=job, slot=slot, tenant=tenant, together=together is not None
            ),
            also=also,
            counts=not (is_measuring or joins) and self._tenants.quota(tenant).slots is not None,
            ahead=ahead,
        )
        if not self._executor.reserve(start.attempt_id, slot):
            self.allocator.refuse(slot.name)
            return
        self._starts.add(start)
        self.allocator.give(
            slot,
            Occupant(start.attempt_id, together, need),
            tenant=tenant,
            trains=(study_id, trial) if kind is AttemptKind.TRAIN and trial is not None else None,
            ahead=ahead,
            alone=alone,
        )
        if alone:
            _log.info("an attempt runs alone", extra={"study_id": study_id, "trial": trial})
        if not is_measuring:
            self._served.add(study_id)

    def _write_starts(self) -> None:
        """Write all that was to start in this round, and start it."""
        outcome = self._starts.write()
        self.allocator.settle()
        for start in outcome.refused:
            if start.tenant not in outcome.quotas_used:
                self.allocator.refuse(start.slot.name)
            self.allocator.free({start.attempt_id})
        for tenant, used in outcome.quotas_used.items():
            self._tenants.note_elsewhere(tenant, slots=used)
        for study_id in {start.study_id for start, _, _ in outcome.started}:
            self.known_trials(study_id).note_write()
        for study_id, lost in outcome.lost_claims.items():
            with self._while_ours(study_id):
                raise lost
        for start, attempt, ticket in outcome.started:
            try:
                self._executor.start(ticket, start.slot)
            except ExecutorError as error:
                words = {"study_id": start.study_id, "reason": error}
                _log.error("an attempt did not start", extra=words)
                self.allocator.free({start.attempt_id})
                run = self._runs[start.study_id]
                with self._while_ours(start.study_id):
                    self._lose(run, attempt, AttemptCause.LOST, f"not started: {error}")

    def _lose(
        self,
        run: StudyRun | MeasuringRun,
        attempt: AttemptRecord,
        cause: AttemptCause,
        detail: str,
    ) -> None:
        self.allocator.note_over(attempt.id)
        run.lost(attempt, cause, detail)

    def _ticket(
        self, attempt: AttemptRecord, *, job: Job, slot: Slot, tenant: str, together: bool
    ) -> AttemptTicket:
        """What the attempt's process is started with."""
        about_trial = {} if attempt.trial is None else {"trial": attempt.trial}
        return AttemptTicket(
            attempt_id=attempt.id,
            lease_seconds=self._lease_seconds,
            device=slot.device,
            data=self._folders.data,
            cache=self._folders.cache,
            lock_folder=lock_folder(self._folders.locks, slot.device),
            threads=job.threads if isinstance(job, MEASURE_JOBS) else 1,
            memory=slot.memory,
            tenant=tenant,
            together=together,
            log_format=self._log_format,
            log_fields={"study_id": attempt.study_id, **about_trial, "attempt_id": attempt.id},
        )

    def cancel(self, attempt_id: str, *, grace_seconds: float = GRACE_SECONDS) -> None:
        """End an attempt's process; its slot is free when it has ended."""
        self._executor.cancel(attempt_id, grace_seconds)

    def _visit(self, study_id: str) -> bool:
        """Let a study do what is due; whether it would take more slots than its turn gives it."""
        is_first = study_id not in self._stepped
        self._stepped.add(study_id)
        self._tenants.begin_turn()
        with self._while_ours(study_id):
            if not is_first:
                self._runs[study_id].dispatch()
            elif not self._step(study_id):
                self._end(study_id)
        return self._tenants.wants_more and study_id in self._runs

    def _wait(self, seconds: float) -> Sequence[Exit]:
        """Wait until an attempt ends, anything is written or done, or for so long."""
        deadline = time.monotonic() + seconds
        while True:
            ended = self._executor.poll(0.0)
            left = deadline - time.monotonic()
            if ended or left <= 0 or self._done or self._looks.has_news():
                self._done = False
                return ended
            self._looks.wait(left)

    def _look(self) -> None:
        """See how all our studies stand: those that stand as before have nothing to do."""
        if self._looks.look(self._runs.keys()):
            for study_id, look in self._looks.all.items():
                self._known[study_id].note_version(look.data_version)

    def _step(self, study_id: str) -> bool:
        look, run = self._looks.all.get(study_id), self._runs[study_id]
        # A study of which there is no row was deleted, and nothing is left to do.
        return look is not None and run.step(look, slots=self.allocator.news())

    def _weight(self, tenant: str) -> float:
        return self._tenants.quota(tenant).weight

    def _recall_what_waits(self) -> None:
        """Have trials wait for any slot again that wait for one that was to be free by now."""
        for attempt_id, study_id in self.allocator.overdue():
            run = self._runs.get(study_id)
            if isinstance(run, StudyRun):
                with self._while_ours(study_id):
                    run.recall(attempt_id)

    def _notice(self, ended: Exit) -> None:
        """Lose an attempt that ended without a last word."""
        try:
            with self.database.read() as session:
                attempt = Attempts(session).get(ended.attempt_id)
        except NotFound:
            # Its study was cancelled and deleted while the process came to its end.
            return
        run = self._runs.get(attempt.study_id)
        if attempt.state.is_open and run is not None:
            with self._while_ours(attempt.study_id):
                self._lose(run, attempt, ended.cause, ended.detail)

    def _expire(self) -> None:
        """Lose attempts whose lease ran out, and end their processes, see Note [Whose clock]."""
        with self.database.read() as session:
            attempts = Attempts(session)
            leases = attempts.leases()
            stale = self._attempts_watch.stale(leases)
            stale -= self._executor.unheard()
            silent = [row for row in attempts.open() if row.id in stale] if stale else []
        for attempt in silent:
            run = self._runs.get(attempt.study_id)
            if run is not None:
                with self._while_ours(attempt.study_id):
                    why = f"its lease of {self._lease_seconds:g} s ran out"
                    self._lose(run, attempt, AttemptCause.LOST, why)
                self._executor.cancel(attempt.id, 0.0)
        self._end_lingering(self.allocator.at_work - leases.keys())

    def _end_lingering(self, over: Set[str]) -> None:
        """End processes that go on for a lease's time after their attempts are over.

        Nothing is lost with one, and nobody else would free its slot: a driver may hang at exit.
        """
        lingering = self._lingering_watch.stale(dict.fromkeys(over, _NOT_RENEWED))
        # Once each: a machine that is cut off obeys when it is back.
        for attempt_id in sorted(lingering - self._lingering):
            _log.warning("a process outlives its attempt", extra={"attempt_id": attempt_id})
            self._executor.cancel(attempt_id, 0.0)
        self._lingering = lingering

    def _keep(self) -> None:
        """Do what is due each second: say that we are there, renew claims, look for machines.

        Rows are read where any was written, where a time is waited for, and now and then in any
        case: machines and coordinators that are silent write nothing.
        """
        now = time.monotonic()
        if now - self._kept_at < min(_KEEP_SECONDS, self._lease_seconds / 4):
            return
        self._kept_at = now
        self._folders.alive.touch()
        if self._former_was_killed is None:
            self._former_was_killed = self._report.former_was_killed(self.database)
        self._recall_what_waits()
        self._write_report()
        # After our own row, and before all that is read.
        committed = self._looks.committed()
        is_new = committed is None or committed != self._read
        waits = self._choosing.is_waiting() or self.allocator.has_refused
        if not (is_new or waits) and now - self._read_at < self._lease_seconds / 8:
            return
        self._read, self._read_at = committed, now
        self.allocator.update(self._executor.capacity())
        self._expire()
        self._claim_studies(again_at=now + _KEEP_SECONDS)
        self._forget_deleted()
        # Machines that are new are in our row at once: who waits for a server waits for them.
        self._write_report()

    def _write_report(self) -> None:
        queued = [future for future in self._in_background.values() if not future.running()]
        self._report.write(
            self.database,
            self.asks,
            slots=self.allocator.all_slots,
            measuring_slots=self.allocator.measuring_slots,
            exchanges_waiting=sum(not future.done() for future in queued),
            taken=self.allocator.taken,
        )

    def _claim_studies(self, *, again_at: float) -> None:
        """Renew the claims on our studies, and claim those that nobody works on.

        Where several tenants wait, some of them are left to the next time, at `again_at`.
        """
        with self.database.read() as session:
            # Of others a look may be older than their run, which has ended since.
            seen = {one: look.study for one, look in self._looks.all.items() if one in self._runs}
            to_measure = ended_studies_to_measure(session, self.allocator)
            studies = [*in_progress(session, seen), *to_measure]
            self._claims.look(session)
            theirs = others(session, owner=self._owner, lease_seconds=self._lease_seconds)
            self._tenants.look(session, {study.tenant for study in studies})
        self._collections.look()
        runs = {(run.tenant, run.priority) for run in self._runs.values()}
        self.allocator.allow_ahead(is_allowed=not theirs and len(runs) == 1)
        ours = Capacity(self.allocator.all_slots, self.allocator.measuring_slots)
        renewed = self._claims.renew(self._runs.keys())
        several, made = len({study.tenant for study in studies}) > 1, 0
        for study in interleaved(studies, tenant=lambda study: study.tenant):
            is_at_work = study.id in self._runs
            if self._choosing.leaves(study, ours, theirs, is_at_work=is_at_work):
                self._leave(study)
                continue
            if is_at_work:
                waits = self._choosing.says_it_waits(study, is_at_work=True)
                say_whether_it_waits(self.database, study, waits=waits)
            if study.id in renewed or (not is_at_work and self._faulty.is_left_alone(study.id)):
                continue
            if not self._claims.take(study.id):
                if is_at_work:
                    self._forget_anothers(study.id)
            elif several and made and time.monotonic() > again_at:
                # Taken up at the next look: what another tenant has begun is served before that.
                continue
            elif not is_at_work and not self._is_in_background(study.id):
                _log.info("study claimed", extra={"study_id": study.id})
                made += 1
                with self._while_ours(study.id):
                    self._runs[study.id] = self._run_of(study)

    def _leave(self, study: StudyRecord) -> None:
        """Let another take a study that our slots do not serve, or have it wait."""
        is_anothers = self._claims.is_anothers(study.id)
        if study.id in self._runs:
            forget = self._forget_anothers if is_anothers else self._forget
            forget(study.id)
            self._claims.release(study.id)
        elif not is_anothers and self._choosing.says_it_waits(study, is_at_work=False):
            say_whether_it_waits(self.database, study, waits=True)

    def _forget_anothers(self, study_id: str, reason: Exception | None = None) -> None:
        """Give up a run of a study that another coordinator has claimed."""
        _log.warning("a study is another's", extra={"study_id": study_id, "reason": reason})
        self._forget(study_id)

    def _run_of(self, study: StudyRecord) -> StudyRun | MeasuringRun:
        self._known[study.id] = KnownTrials(self.database, study.id)
        ended = study.state.has_ended
        return MeasuringRun(self, study) if ended else StudyRun(self, study, self._copies)

    @contextmanager
    def _while_ours(self, study_id: str) -> Generator[None]:
        """Leave a study alone that is another's, and read one anew that was changed meanwhile.

        What runs of another's ends by itself: its leases are over. Where an error was met that
        nobody foresaw, the study is left alone for a while, and what runs of it goes on.
        """
        try:
            with bound(study_id=study_id):
                yield
        except ClaimLost as error:
            self._forget_anothers(study_id, error)
        except Conflict as error:
            _log.warning("a study was changed", extra={"study_id": study_id, "reason": error})
            self._forget(study_id)
        except DatabaseUnavailable:
            raise
        except Exception:
            seconds = self._faulty.note(study_id)
            fields = {"study_id": study_id, "seconds": seconds}
            _log.exception("a study met an error, and is left alone for a while", extra=fields)
            self._forget(study_id)

    def _without_database(self, error: Exception) -> None:
        """Forget where each study stood: it is read anew when there is an answer.

        Between the two a step may have been done by halves, as by a coordinator that died.
        """
        self.allocator.free(self._starts.drop())
        self.allocator.settle()
        for study_id in list(self._runs):
            self._forget(study_id)
        if not self._away:
            self._away = True
            _log.error("the database does not answer", extra={"reason": _first_line(error)})

    def _forget(self, study_id: str) -> None:
        """Give a run up; another begins when what it has in the background is done."""
        run = self._runs.pop(study_id, None)
        self._known.pop(study_id, None)
        self.allocator.forget(study_id)
        if run is not None:
            run.halt()

    def _is_in_background(self, study_id: str) -> bool:
        future = self._in_background.get(study_id)
        return future is not None and not future.done()

    def _forget_deleted(self) -> None:
        try:
            forget_deleted(self.database, self._copies)
        except (StorageInternalError, DBAPIError) as error:
            # The copies of deleted studies go when Optuna's tables answer again.
            _log.warning("Optuna's copies do not answer", extra={"reason": _first_line(error)})

    def _end(self, study_id: str) -> None:
        """Release a study that has ended."""
        del self._runs[study_id]
        del self._known[study_id]
        self.allocator.forget(study_id)
        self._in_background.pop(study_id, None)
        self._faulty.forget(study_id)
        self._claims.release(study_id)
        if self._ended is not None:
            self._ended(study_id)

    def _say_that_it_stops(self) -> None:
        """Before all else: nobody is to be blamed for an end that was asked for."""
        try:
            self._report.remove(self.database)
        except DatabaseUnavailable as error:
            _log.warning("the end is not told", extra={"reason": _first_line(error)})

    def _give_up(self) -> None:
        """Lose what runs and release every study: this coordinator stops."""
        for study_id, run in list(self._runs.items()):
            with self._while_ours(study_id):
                run.abandon()
            self._claims.release(study_id)


def _about(study_id: str, work: Callable[[], bool]) -> bool:
    """Do a study's work in another thread, which knows nothing yet of what it logs about."""
    with bound(study_id=study_id):
        return work()


def _first_line(error: Exception) -> str:
    """What a database said; Optuna only says that something was said."""
    said = error.__cause__ if isinstance(error, StorageInternalError) else error
    return str(said).strip().partition("\n")[0]
