"""What a machine's agent says of its attempts, taken in one transaction.

Each word proves its attempt's lease token, and one that is refused undoes nothing of the others.
All of a sync may come again, for its answer may be lost: what was taken before is passed over, and
answered as it was.
"""

import io
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, final

from sqlalchemy.orm import Session

from search.agents.protocol import (
    ArtifactItem,
    Beat,
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
from search.running.attempt_checks import CLOCKS_APART, check_seconds
from search.running.attempts import (
    LAST_WORDS,
    OF_THE_LEASE,
    finish,
    impossible,
    job_of,
    measurement_id,
    refuse_if_full,
    store_epoch,
    store_measurement,
    tell_progress,
    token_digest,
    trial_of,
)
from search.running.early_stopping import reason_to_stop
from search.running.trial_endings import ended_with
from search.studies import StudySpec
from search.training.jobs import EpochReport, MeasureJob, TrainJob
from storage.blobs.artifacts import ArtifactStore, restore_if_missing, store_stream
from storage.endings import AttemptCause
from storage.engine import Database
from storage.errors import (
    ArtifactDamaged,
    Conflict,
    LeaseLost,
    NotFound,
    StoredBytesReached,
    StoreFull,
)
from storage.fleet.bookings import Bookings
from storage.garbage_collect import garbage_collect
from storage.records import ArtifactRecord, AttemptKind, AttemptRecord, StudyRecord
from storage.repositories.artifact_rows import ArtifactRows
from storage.repositories.attempt_logs import AttemptLogs
from storage.repositories.attempts import Attempts
from storage.repositories.measurements import Measurements
from storage.repositories.metrics import Metrics
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials

_log = logging.getLogger(__name__)

_REMEMBERED: Final = 1024
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
    """An attempt that a sync speaks of, proved once."""

    record: AttemptRecord
    study: StudyRecord
    spec: StudySpec
    job: TrainJob | None
    reason: str | None = None
    """Why its trial is to stop."""
    over: bool = False
    """Whether nothing more of it counts."""
    renewal: EpochReport | None = None
    """The last of its words that renew its lease, which is done once for all of them."""
    reported: dict[int, int] = field(default_factory=dict[int, int])
    """By epoch, from `known_since` on, which attempt's word about it is kept."""
    known_since: int | None = None


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
        with self.database.read() as session:
            jobs: dict[str, TrainJob] = {}
            for place, brought in bytes_of.items():
                item = body.items[place]
                digest = token_digest(body.tokens.get(item.attempt, ""))
                attempts = Attempts(session)
                try:
                    if isinstance(item, LogItem):
                        attempts.belonging(item.attempt, digest, ended_since=now - LAST_WORDS)
                    elif item.attempt not in jobs:
                        record = attempts.authenticate(item.attempt, digest)
                        jobs[item.attempt] = job_of(record, TrainJob)
                except _REFUSED as error:
                    brought.error = error
        for place, brought in bytes_of.items():
            item = body.items[place]
            if brought.error is not None:
                continue
            try:
                brought.stored = self._stored(item, brought.content, jobs.get(item.attempt), now)
            except _REFUSED as error:
                brought.error = error

    def _stored(
        self, item: Item, content: bytes, job: TrainJob | None, now: datetime
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

    def take(self, session: Session, machine_id: str) -> Synced:
        """Take all of it in this writing session, which is the agent's own."""
        places: defaultdict[str, list[int]] = defaultdict(list)
        for place, item in enumerate(self._body.items):
            places[item.attempt].append(place)
        refused: list[Refusal] = []
        stop: dict[str, str] = {}
        # In one order for all, so that no two of us wait for each other.
        for attempt_id in self._in_order(session, {*places, *self._body.beats}):
            reason = self._of_attempt(
                session, machine_id, attempt_id, places.get(attempt_id, []), refused
            )
            if reason is not None:
                stop[attempt_id] = reason
        return Synced(
            refused=tuple(refused),
            stop=stop,
            lease_seconds=self._taker.lease_seconds,
        )

    def clean_up(self) -> None:
        """After the commit: remove bytes that nothing names any more."""
        if self._replaced:
            garbage_collect(self._taker.database, self._taker.store, self._replaced)

    def _in_order(self, session: Session, attempt_ids: set[str]) -> list[str]:
        studies = Attempts(session).studies_of(attempt_ids)
        return sorted(attempt_ids, key=lambda one: (studies.get(one, ""), one))

    def _of_attempt(
        self,
        session: Session,
        machine_id: str,
        attempt_id: str,
        places: Sequence[int],
        refused: list[Refusal],
    ) -> str | None:
        """Take what is said of one attempt; returns why it is to stop, if it is."""
        digest = token_digest(self._body.tokens.get(attempt_id, ""))
        beat = self._body.beats.get(attempt_id)
        attempt = self._words(session, machine_id, attempt_id, places, refused)
        if attempt is not None and attempt.renewal is not None and not attempt.over:
            Attempts(session).renew(
                attempt_id,
                until=_now() + timedelta(seconds=self._taker.lease_seconds),
                stood_still_seconds=attempt.renewal.stood_still_seconds,
                held_seconds=attempt.renewal.held_seconds,
            )
        if beat is None or (attempt is not None and attempt.over):
            return None if attempt is None or attempt.over else _why_to_stop(session, attempt)
        return self._beat(session, attempt_id, digest, beat, attempt, refused)

    def _words(
        self,
        session: Session,
        machine_id: str,
        attempt_id: str,
        places: Sequence[int],
        refused: list[Refusal],
    ) -> _Attempt | None:
        """Take an attempt's words; returns the attempt if it was at work when they came."""
        if not places:
            return None
        replaced = len(self._replaced)
        try:
            # Nearly always all of them are taken.
            with session.begin_nested():
                attempt: _Attempt | None = None
                for place in places:
                    attempt = self._proved_once(session, attempt, place)
                    self._word(session, machine_id, attempt, place)
                return attempt
        except _REFUSED:
            del self._replaced[replaced:]
            return self._word_by_word(session, machine_id, attempt_id, places, refused)

    def _proved_once(
        self, session: Session, attempt: _Attempt | None, place: int
    ) -> _Attempt | None:
        """The attempt that a word is about; null where that needs no lease, or was taken before."""
        item = self._body.items[place]
        if attempt is not None or isinstance(item, ExitItem | LogItem):
            return attempt
        digest = token_digest(self._body.tokens.get(item.attempt, ""))
        if Attempts(session).had_its_last_word(item.attempt, digest):
            return None
        return self._proved(session, item.attempt, digest)

    def _word(
        self, session: Session, machine_id: str, attempt: _Attempt | None, place: int
    ) -> None:
        item = self._body.items[place]
        if isinstance(item, ExitItem):
            _exit(session, machine_id, item)
        elif isinstance(item, LogItem):
            digest = token_digest(self._body.tokens.get(item.attempt, ""))
            self._log(session, item, place, digest)
        elif attempt is not None:
            if attempt.over:
                raise LeaseLost(f"attempt {item.attempt!r} has ended")
            self._one(session, attempt, item, place)

    def _word_by_word(
        self,
        session: Session,
        machine_id: str,
        attempt_id: str,
        places: Sequence[int],
        refused: list[Refusal],
    ) -> _Attempt | None:
        """Take what can be taken of an attempt's words, one of which is refused."""
        attempt: _Attempt | None = None
        for place in places:
            try:
                # What one word has changed before it is refused is undone, and no more.
                with session.begin_nested():
                    attempt = self._proved_once(session, attempt, place)
                    self._word(session, machine_id, attempt, place)
            except _REFUSED as error:
                why: Any = next(_WHY[kind] for kind in _WHY if isinstance(error, kind))
                detail = str(error)
                if isinstance(error, ReportRefused) and attempt is not None:
                    detail = impossible(session, attempt.record, error)
                    attempt.over = True
                refused.append(
                    Refusal(attempt=attempt_id, item=place, why=why, detail=detail[:2000])
                )
                if why == "full":
                    # What comes after it may rest on it.
                    break
        return attempt

    def _beat(
        self,
        session: Session,
        attempt_id: str,
        digest: str,
        beat: Beat,
        attempt: _Attempt | None,
        refused: list[Refusal],
    ) -> str | None:
        now = _now()
        try:
            # A time that cannot be is undone; one of less than a day is never such a one.
            longest = max(beat.stood_still_seconds, beat.held_seconds)
            with (
                session.begin_nested() if longest > CLOCKS_APART.total_seconds() else nullcontext()
            ):
                kept = Attempts(session).keep_alive(
                    attempt_id,
                    digest,
                    until=now + timedelta(seconds=self._taker.lease_seconds),
                    stood_still_seconds=beat.stood_still_seconds,
                    held_seconds=beat.held_seconds,
                )
                check_seconds(beat.model_dump(), passed=now - kept.started_at)
        except LeaseLost as error:
            refused.append(Refusal(attempt=attempt_id, item=None, why="lease", detail=str(error)))
            return None
        except ReportRefused as error:
            record = Attempts(session).authenticate(attempt_id, digest)
            detail = impossible(session, record, error)
            refused.append(Refusal(attempt=attempt_id, item=None, why="invalid", detail=detail))
            return None
        if attempt is not None:
            return _why_to_stop(session, attempt)
        return None if kept.ending_cause is None else ended_with(kept).reason

    def _proved(self, session: Session, attempt_id: str, digest: str) -> _Attempt:
        record = Attempts(session).authenticate(attempt_id, digest)
        study = Studies(session).get(record.study_id)
        job = job_of(record, TrainJob) if record.kind is AttemptKind.TRAIN else None
        return _Attempt(record, study, self._taker.spec_of(study), job)

    def _one(self, session: Session, attempt: _Attempt, item: Item, place: int) -> None:
        if isinstance(item, EpochItem):
            self._epoch(session, attempt, item)
        elif isinstance(item, MeasurementItem):
            job = job_of(attempt.record, MeasureJob)
            if not Measurements(session).has(measurement_id(attempt.record.id, item.report.trial)):
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
        if attempt.job is None:
            raise Conflict(f"attempt {record.id} ({record.kind}) trains no trial")
        number = trial_of(record)
        if attempt.known_since is None or report.epoch - 1 < attempt.known_since:
            attempt.known_since = report.epoch - 1
            attempt.reported = Metrics(session).reporters(
                record.study_id, number, since=attempt.known_since
            )
        if attempt.reported.get(report.epoch) == record.number:
            trial = Trials(session).get(record.study_id, number)
            attempt.reason = reason_to_stop(trial, report.epoch)
            return
        said = report.model_dump(include=OF_THE_LEASE)
        check_seconds(said, passed=_now() - record.started_at)
        attempt.reason = store_epoch(
            session,
            record,
            attempt.study,
            attempt.spec,
            attempt.job,
            report,
            reported=attempt.reported,
        )
        attempt.reported[report.epoch] = record.number
        attempt.renewal = report

    def _artifact(
        self, session: Session, attempt: _Attempt, item: ArtifactItem, place: int
    ) -> None:
        brought = self._bytes[place]
        if brought.stored is None:
            raise brought.error or Conflict("its bytes did not come")
        rows = ArtifactRows(session)
        rows.lock_names()
        refuse_if_full(session, attempt.study)
        number = trial_of(attempt.record)
        self._replaced += rows.link(attempt.study.id, number, item.role, brought.stored)
        store = self._taker.store
        restore_if_missing(store, brought.stored.sha256, io.BytesIO(brought.content))

    def _log(self, session: Session, item: LogItem, place: int, digest: str) -> None:
        brought, now = self._bytes[place], _now()
        if brought.stored is None:
            raise brought.error or Conflict("its bytes did not come")
        attempt = Attempts(session).belonging(item.attempt, digest, ended_since=now - LAST_WORDS)
        self._replaced += AttemptLogs(session).put(
            item.attempt,
            study_id=attempt.study_id,
            artifact=brought.stored,
            cut=item.cut,
            at=now,
        )
        store = self._taker.store
        restore_if_missing(store, brought.stored.sha256, io.BytesIO(brought.content))


def _exit(session: Session, machine_id: str, item: ExitItem) -> None:
    Bookings(session).exit(
        item.attempt,
        machine_id=machine_id,
        returncode=item.returncode,
        signal=item.signal,
        cause=AttemptCause(item.cause),
        detail=item.detail,
    )


def _why_to_stop(session: Session, attempt: _Attempt) -> str | None:
    try:
        study = Studies(session).get(attempt.study.id)
    except NotFound:
        return None
    if study.ending_cause is not None:
        return ended_with(study).reason
    return attempt.reason


def _now() -> datetime:
    return datetime.now(UTC)
