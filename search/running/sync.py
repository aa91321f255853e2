"""What a machine's agent says of its attempts, taken in one transaction.

Each word proves its attempt's lease token, and one that is refused undoes nothing of the others.
All of a sync may come again, for its answer may be lost: what was taken before is passed over, and
answered as it was.
"""

import io
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, final

from sqlalchemy.orm import Session

from search.agents.protocol import (
    ArtifactItem,
    BeganItem,
    EndItem,
    EpochItem,
    ExitItem,
    Item,
    LogItem,
    MeasurementItem,
    ProgressItem,
    Refusal,
    Sync,
    Synced,
)
from search.errors import ReportRefused
from search.running.artifact_checks import ROLES, check_artifact
from search.running.attempt_checks import check_seconds
from search.running.attempts import (
    LAST_WORDS,
    OF_THE_LEASE,
    begin,
    checked_epoch,
    finish,
    impossible,
    judge_epoch,
    measure_job_of,
    measurement_id,
    refuse_if_full,
    store_epochs,
    store_measurement,
    tell_progress,
    token_digest,
    trial_job_of,
    trial_of,
)
from search.running.early_stopping import Order, order_for
from search.running.trial_endings import ended_with
from search.studies import StudySpec
from search.training.jobs import TrialJob
from storage.accounts.quotas import Quotas
from storage.blobs.artifacts import ArtifactStore, restore_if_missing, store_stream
from storage.endings import AttemptCause
from storage.engine import Database
from storage.errors import (
    ArtifactDamaged,
    Conflict,
    LeaseLost,
    StoredBytesReached,
    StoreFull,
)
from storage.fleet.bookings import Bookings
from storage.garbage_collect import garbage_collect
from storage.locking import lock_studies_of
from storage.records import (
    ArtifactRecord,
    AttemptRecord,
    AttemptState,
    MetricRecord,
    StudyRecord,
)
from storage.repositories.artifact_rows import ArtifactRows
from storage.repositories.attempt_logs import AttemptLogs, LogBytes
from storage.repositories.attempts import Attempts, Renewal, lost
from storage.repositories.measurements import Measurements
from storage.repositories.metrics import Metrics
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials

_log = logging.getLogger(__name__)

_REMEMBERED: Final = 1024
_STORED_AT_ONCE: Final = 8
_WHY: Final[Mapping[type[Exception], str]] = {
    LeaseLost: "lease",
    ReportRefused: "invalid",
    ArtifactDamaged: "conflict",
    Conflict: "conflict",
    StoredBytesReached: "full",
    StoreFull: "full",
}
"""What is answered to a word that raises one of these."""
_REFUSED: Final = tuple(_WHY)


@dataclass
class _Bytes:
    """Bytes that came with an item, in the store before a row names them."""

    content: bytes
    stored: ArtifactRecord | None = None
    error: Exception | None = None
    """Why they are not stored."""


@dataclass
class _Attempt:
    """An attempt that a sync speaks of, whose token was proved."""

    record: AttemptRecord
    study: StudyRecord
    spec: StudySpec
    reported: dict[int, int]
    """By epoch which attempt's word about it is kept, of those that this sync's words depend on."""
    order: Order | None = None
    """What its trial is to do at the end of its epoch."""
    over: bool = False
    """Whether nothing more of it counts."""
    renewals: list[Renewal] = field(default_factory=list[Renewal])
    """Of its words that renew its lease the last, and its beat: done once for all."""


@dataclass
class _Writes:
    """What words of one study's attempts change that is written together."""

    metrics: list[tuple[int, MetricRecord]] = field(default_factory=list[tuple[int, MetricRecord]])
    """Epochs, each with its trial's number."""
    artifacts: dict[tuple[int, str], _Bytes] = field(default_factory=dict[tuple[int, str], _Bytes])
    """By trial and role."""


@final
class SyncTaker:
    """Takes the words of agents about attempts.

    Args:
        database: where their rows are.
        store: where their bytes go.
        lease_seconds: how long a lease holds.
    """

    def __init__(self, database: Database, store: ArtifactStore, *, lease_seconds: float) -> None:
        self.database = database
        self.store = store
        self.lease_seconds = lease_seconds
        self._threads = ThreadPoolExecutor(_STORED_AT_ONCE, thread_name_prefix="store")
        self._specs: dict[str, tuple[Mapping[str, Any], StudySpec]] = {}

    def prepared(self, body: Sync, contents: Sequence[bytes]) -> "Taking":
        """Have the bytes of a sync stored, so that rows can name them.

        Raises:
            StoreUnavailable: the store does not answer.
        """
        brought = iter(contents)
        bytes_of = {
            place: _Bytes(next(brought))
            for place, item in enumerate(body.items)
            if isinstance(item, ArtifactItem | LogItem)
        }
        if bytes_of:
            self._store_all(body, bytes_of)
        return Taking(self, body, bytes_of)

    def _store_all(self, body: Sync, bytes_of: Mapping[int, _Bytes]) -> None:
        now = _now()
        digests = _digests(body, {body.items[place].attempt for place in bytes_of})
        with self.database.read() as session:
            attempts = Attempts(session).proved(digests)
        jobs: dict[str, TrialJob] = {}
        for place, brought in bytes_of.items():
            item = body.items[place]
            try:
                attempt = _of(attempts, item.attempt)
                if isinstance(item, LogItem):
                    _refuse_if_long_over(attempt, now)
                elif item.attempt not in jobs:
                    _refuse_if_over(attempt)
                    jobs[item.attempt] = trial_job_of(attempt)
            except _REFUSED as error:
                brought.error = error

        def store(place: int) -> None:
            item, brought = body.items[place], bytes_of[place]
            try:
                brought.stored = self._stored(item, brought.content, jobs.get(item.attempt), now)
            except _REFUSED as error:
                brought.error = error

        # Side by side: each waits for the disk, which takes many at once as fast as one.
        places = [place for place, brought in bytes_of.items() if brought.error is None]
        list(self._threads.map(store, places))

    def _stored(
        self, item: Item, content: bytes, job: TrialJob | None, now: datetime
    ) -> ArtifactRecord:
        stream = io.BytesIO(content)
        if not isinstance(item, ArtifactItem) or job is None:
            return store_stream(self.store, stream, now)
        if item.role not in ROLES:
            raise Conflict(f"a worker stores {', '.join(ROLES)}, not {item.role!r}")
        return store_stream(
            self.store,
            stream,
            now,
            expected_sha256=item.sha256,
            check=lambda whole: check_artifact(item.role, whole, job),
        )

    def spec_of(self, study: StudyRecord) -> StudySpec:
        """A study's document, parsed once for as long as it stays the same."""
        known = self._specs.get(study.id)
        if known is None or known[0] != study.spec:
            known = (study.spec, StudySpec.model_validate(study.spec))
            if len(self._specs) >= _REMEMBERED:
                self._specs.clear()
            self._specs[study.id] = known
        return known[1]


@dataclass
class Taking:
    """One sync whose bytes are stored, on its way into the rows."""

    _taker: SyncTaker
    _body: Sync
    _bytes: Mapping[int, _Bytes]
    _replaced: list[str] = field(default_factory=list[str])
    """Digests of what was stored before in the same place."""
    _records: Mapping[str, AttemptRecord] = field(default_factory=dict[str, AttemptRecord])
    _attempts: dict[str, _Attempt] = field(default_factory=dict[str, _Attempt])
    """Those that were at work when the sync came."""
    _writes: defaultdict[str, _Writes] = field(default_factory=lambda: defaultdict(_Writes))
    """By study."""
    _logs: defaultdict[str, dict[str, tuple[_Bytes, int]]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    """By study and attempt, each with how many bytes stood before. Nothing depends on them."""
    _roomy: set[str] = field(default_factory=set[str])
    """Tenants whose bytes have no limit."""
    _refused: list[Refusal] = field(default_factory=list[Refusal])
    _waiting: set[str] = field(default_factory=set[str])
    """Attempts of which something found no room: what comes after it may rest on it."""

    def take(self, session: Session, machine_id: str) -> Synced:
        """Take all of it in this writing session, which is the agent's own."""
        places: defaultdict[str, list[int]] = defaultdict(list)
        for place, item in enumerate(self._body.items):
            places[item.attempt].append(place)
        self._prove(session, places)
        # Before all else: what an attempt says rests on its having begun.
        for place, item in enumerate(self._body.items):
            if isinstance(item, BeganItem):
                self._word(session, machine_id, place)
                places[item.attempt].remove(place)
        # In one order for all, so that no two of us wait for each other.
        order = sorted(places, key=self._place_of)
        # Of most attempts all words can be written with those of the others. What cannot comes
        # after them, and all that was said of its attempt later.
        rest = {one: self._begin(session, machine_id, places[one]) for one in order}
        self._write(session)
        for attempt_id in order:
            for place in rest[attempt_id]:
                self._word(session, machine_id, place)
        self._write(session)
        self._write_logs(session)
        self._renew(session)
        stop, pause = self._to_end(session)
        return Synced(
            refused=tuple(self._refused),
            stop=stop,
            pause=pause,
            lease_seconds=self._taker.lease_seconds,
        )

    def clean_up(self) -> None:
        """After the commit: remove bytes that nothing names any more."""
        if self._replaced:
            garbage_collect(self._taker.database, self._taker.store, self._replaced)

    def _prove(self, session: Session, places: Mapping[str, Sequence[int]]) -> None:
        """Read all attempts that are spoken of, with what their words depend on."""
        items = self._body.items
        # An attempt's exit changes no row of its study, nor does a beat.
        speak = {item.attempt for item in items if not isinstance(item, ExitItem)}
        lock_studies_of(session, speak)
        digests = _digests(self._body, speak | self._body.beats.keys())
        self._records = Attempts(session).proved(digests)
        at_work = [record for record in self._records.values() if record.state.is_open]
        of_studies = {record.study_id for record in at_work}
        studies = {one.id: one for one in Studies(session).with_ids(of_studies)}
        if any(isinstance(item, ArtifactItem) for item in items):
            quotas = Quotas(session).all(study.tenant for study in studies.values())
            self._roomy = {name for name in quotas if quotas[name].stored_bytes is None}
        reported = self._reported(session, at_work, places)
        for record in at_work:
            study = studies.get(record.study_id)
            if study is None:
                # It was deleted just now, which a beat does not wait for.
                continue
            self._attempts[record.id] = _Attempt(
                record, study, self._taker.spec_of(study), reported.get(record.id, {})
            )

    def _reported(
        self,
        session: Session,
        at_work: Sequence[AttemptRecord],
        places: Mapping[str, Sequence[int]],
    ) -> Mapping[str, dict[int, int]]:
        """By attempt and epoch whose word is kept about the epochs reported, and before."""
        told: defaultdict[str, dict[str, int]] = defaultdict(dict)
        epochs: defaultdict[str, set[int]] = defaultdict(set)
        for record in at_work:
            for place in places.get(record.id, ()):
                item = self._body.items[place]
                if isinstance(item, EpochItem) and record.trial is not None:
                    told[record.study_id][record.id] = record.trial
                    epochs[record.study_id] |= {item.report.epoch - 1, item.report.epoch}
        found: dict[str, dict[int, int]] = {}
        for study_id, trials in told.items():
            kept = Metrics(session).reporters_of(study_id, trials.values(), epochs[study_id])
            found |= {attempt_id: kept[trial] for attempt_id, trial in trials.items()}
        return found

    def _place_of(self, attempt_id: str) -> tuple[str, str]:
        record = self._records.get(attempt_id)
        return "" if record is None else record.study_id, attempt_id

    def _begin(self, session: Session, machine_id: str, places: Sequence[int]) -> Sequence[int]:
        """Take an attempt's first words, as far as they are written later; returns the others."""
        for count, place in enumerate(places):
            if not self._is_written_later(self._body.items[place]):
                return places[count:]
            self._word(session, machine_id, place)
        return ()

    def _is_written_later(self, item: Item) -> bool:
        """Whether a word changes nothing yet when it is taken, so that nothing is to be undone."""
        if not isinstance(item, EpochItem | ArtifactItem | LogItem):
            return False
        if isinstance(item, LogItem):
            return True
        attempt = self._attempts.get(item.attempt)
        if attempt is None:
            return True
        if isinstance(item, ArtifactItem):
            return self._has_no_limit(attempt)
        # What an epoch decides rests on all that was said before it, and nothing after it.
        spec = attempt.spec
        decides = spec.early_stopping is not None or spec.sampler.rungs(spec.budget.epochs)
        return not decides and spec.budget.total_epochs is None

    def _word(self, session: Session, machine_id: str, place: int) -> None:
        """Take a word; what one has changed before it is refused is undone, and no more."""
        item = self._body.items[place]
        if item.attempt in self._waiting:
            return
        if isinstance(item, ExitItem):
            _exit(session, machine_id, item)
            return
        at_once = not self._is_written_later(item)
        if at_once:
            self._write(session)
        replaced = len(self._replaced)
        try:
            with session.begin_nested() if at_once else nullcontext():
                self._one(session, item, place)
                if at_once:
                    self._write(session)
        except _REFUSED as error:
            if at_once:
                self._writes.clear()
                del self._replaced[replaced:]
            self._refuse(session, item, place, error)

    def _refuse(self, session: Session, item: Item, place: int, error: Exception) -> None:
        why: Any = next(_WHY[kind] for kind in _WHY if isinstance(error, kind))
        detail = str(error)
        if isinstance(error, ReportRefused) and (attempt := self._attempts.get(item.attempt)):
            self._write(session)
            detail = impossible(session, attempt.record, error)
            attempt.over = True
        self._refused.append(
            Refusal(attempt=item.attempt, item=place, why=why, detail=detail[:2000])
        )
        if why == "full":
            self._waiting.add(item.attempt)

    def _one(self, session: Session, item: Item, place: int) -> None:
        record = _of(self._records, item.attempt)
        if isinstance(item, LogItem):
            self._log(record, item, place)
            return
        attempt = self._attempts.get(item.attempt)
        if attempt is None and record.state is AttemptState.ENDED:
            # It had its last word before, and this one is said again.
            return
        if attempt is None or attempt.over:
            raise lost(item.attempt)
        if isinstance(item, BeganItem):
            if attempt.record.state is AttemptState.ASSIGNED:
                attempt.record = begin(session, attempt.record, item.waited_seconds)
        elif attempt.record.state is AttemptState.ASSIGNED:
            raise Conflict(f"attempt {record.id} has not begun")
        elif isinstance(item, EpochItem):
            self._epoch(session, attempt, item)
        elif isinstance(item, MeasurementItem):
            job = measure_job_of(record)
            if not Measurements(session).has(measurement_id(record.id, item.report.trial)):
                store_measurement(session, attempt.record, attempt.study, job, item.report)
        elif isinstance(item, ProgressItem):
            tell_progress(session, attempt.record, item.report)
        elif isinstance(item, ArtifactItem):
            self._artifact(session, attempt, item, place)
        elif isinstance(item, EndItem):
            finish(session, attempt.record, attempt.study, item.completion)
            attempt.over = True

    def _epoch(self, session: Session, attempt: _Attempt, item: EpochItem) -> None:
        record, report = attempt.record, item.report
        job, number = trial_job_of(record), trial_of(record)
        if attempt.reported.get(report.epoch) == record.number:
            trial = Trials(session).get(record.study_id, number)
            attempt.order = order_for(trial, report.epoch)
            return
        said = report.model_dump(include=OF_THE_LEASE)
        check_seconds(said, passed=_now() - record.started_at)
        is_new = report.epoch not in attempt.reported
        metric = checked_epoch(record, job, report, reported=attempt.reported)
        self._writes[record.study_id].metrics.append((number, metric))
        if not self._is_written_later(item):
            self._write(session)
            attempt.order = judge_epoch(
                session, attempt.study, attempt.spec, number, report.epoch, is_new=is_new
            )
        attempt.reported[report.epoch] = record.number
        said_last = Renewal(record.id, report.stood_still_seconds, report.held_seconds)
        attempt.renewals[:] = [said_last]

    def _artifact(
        self, session: Session, attempt: _Attempt, item: ArtifactItem, place: int
    ) -> None:
        brought = self._bytes[place]
        if brought.stored is None:
            raise brought.error or Conflict("its bytes did not come")
        if not self._has_no_limit(attempt):
            ArtifactRows(session).lock_names()
            refuse_if_full(session, attempt.study)
        artifacts = self._writes[attempt.study.id].artifacts
        where = trial_of(attempt.record), item.role
        if where in artifacts:
            # It was replaced before it was ever named.
            before = artifacts[where].stored
            self._replaced += [] if before is None else [before.sha256]
        artifacts[where] = brought

    def _has_no_limit(self, attempt: _Attempt) -> bool:
        return attempt.study.tenant in self._roomy

    def _write(self, session: Session) -> None:
        """Write what was taken so far and is not written yet."""
        writes = {study_id: self._writes[study_id] for study_id in sorted(self._writes)}
        self._writes.clear()
        for study_id, these in writes.items():
            if these.metrics:
                store_epochs(session, study_id, these.metrics)
        for study_id, these in writes.items():
            named = {
                where: brought.stored
                for where, brought in these.artifacts.items()
                if brought.stored is not None
            }
            if named:
                self._replaced += ArtifactRows(session).link_all(study_id, named)
            for brought in these.artifacts.values():
                self._restore(brought)

    def _restore(self, brought: _Bytes) -> None:
        if brought.stored is not None:
            stream = io.BytesIO(brought.content)
            restore_if_missing(self._taker.store, brought.stored.sha256, stream)

    def _log(self, record: AttemptRecord, item: LogItem, place: int) -> None:
        brought, now = self._bytes[place], _now()
        _refuse_if_long_over(record, now)
        if brought.stored is None:
            raise brought.error or Conflict("its bytes did not come")
        logs = self._logs[record.study_id]
        if (before := logs.get(record.id)) is not None and before[0].stored is not None:
            self._replaced.append(before[0].stored.sha256)
        logs[record.id] = brought, item.cut

    def _write_logs(self, session: Session) -> None:
        for study_id in sorted(self._logs):
            named = {
                attempt_id: LogBytes(brought.stored, cut)
                for attempt_id, (brought, cut) in self._logs[study_id].items()
                if brought.stored is not None
            }
            self._replaced += AttemptLogs(session).put_all(study_id, named, at=_now())
            for brought, _ in self._logs[study_id].values():
                self._restore(brought)

    def _renew(self, session: Session) -> None:
        """Prolong the leases of those that beat, and of those that said something."""
        now = _now()
        renewals: list[Renewal] = []
        for attempt_id, beat in self._body.beats.items():
            attempt = self._attempts.get(attempt_id)
            try:
                if attempt is None:
                    raise lost(attempt_id)
                if not attempt.over:
                    check_seconds(beat.model_dump(), passed=now - attempt.record.started_at)
                    # What waits for its place has no device yet.
                    waits = attempt.record.state is AttemptState.ASSIGNED
                    held = None if waits else beat.held_seconds
                    said = Renewal(attempt_id, beat.stood_still_seconds, held)
                    attempt.renewals.append(said)
            except LeaseLost as error:
                self._refuse_beat(attempt_id, "lease", str(error))
            except ReportRefused as error:
                assert attempt is not None
                attempt.over = True
                self._refuse_beat(attempt_id, "invalid", impossible(session, attempt.record, error))
        for attempt in self._attempts.values():
            renewals += [] if attempt.over else attempt.renewals
        until = now + timedelta(seconds=self._taker.lease_seconds)
        Attempts(session).renew_all(renewals, until=until)

    def _refuse_beat(self, attempt_id: str, why: Any, detail: str) -> None:
        self._refused.append(Refusal(attempt=attempt_id, item=None, why=why, detail=detail))

    def _to_end(self, session: Session) -> tuple[dict[str, str], dict[str, str]]:
        """Why those of the attempts are to stop that are, and why those that are to pause."""
        going_on = [one for one in self._attempts.values() if not one.over]
        # Some of the words may have ended their study.
        of_studies = {one.study.id for one in going_on}
        endings = {one.id: one for one in Studies(session).with_ids(of_studies)}
        stop: dict[str, str] = {}
        pause: dict[str, str] = {}
        for attempt in going_on:
            ending = endings.get(attempt.study.id, attempt.study)
            told = ending.ending_cause is not None
            order = Order("stop", ended_with(ending).reason or "") if told else attempt.order
            if order is not None:
                (stop if order.verdict == "stop" else pause)[attempt.record.id] = order.reason
        return stop, pause


def _digests(body: Sync, attempt_ids: Set[str]) -> dict[str, str]:
    """The digests of the tokens that came for attempts."""
    return {one: token_digest(body.tokens.get(one, "")) for one in attempt_ids}


def _of(attempts: Mapping[str, AttemptRecord], attempt_id: str) -> AttemptRecord:
    attempt = attempts.get(attempt_id)
    if attempt is None:
        raise lost(attempt_id)
    return attempt


def _refuse_if_over(attempt: AttemptRecord) -> None:
    if attempt.state is not AttemptState.RUNNING:
        raise lost(attempt.id)


def _refuse_if_long_over(attempt: AttemptRecord, now: datetime) -> None:
    """Refuse the log of an attempt that ended so long ago that nobody waits for it."""
    if attempt.ended_at is not None and attempt.ended_at < now - LAST_WORDS:
        raise lost(attempt.id)


def _exit(session: Session, machine_id: str, item: ExitItem) -> None:
    Bookings(session).exit(
        item.attempt,
        machine_id=machine_id,
        returncode=item.returncode,
        signal=item.signal,
        cause=AttemptCause(item.cause),
        detail=item.detail,
    )


def _now() -> datetime:
    return datetime.now(UTC)
