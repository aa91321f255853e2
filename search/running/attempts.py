"""What a worker's word does: the only place where a running attempt changes our tables.

Every call proves the attempt's lease token first and does all of its work in one transaction, so
that a late word of an older attempt changes nothing.
"""

import hashlib
import logging
from collections.abc import Container, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, BinaryIO

from pydantic import TypeAdapter
from sqlalchemy.orm import Session

from search.documents.export_kinds import CHECKPOINT
from search.errors import ReportRefused
from search.graphs.model_outputs import ModelOutputs
from search.running.artifact_checks import ROLES, check_artifact
from search.running.attempt_checks import (
    check_epoch,
    check_measurement,
    check_prepared,
    check_seconds,
    check_training,
)
from search.running.early_stopping import Order, judge
from search.running.trial_endings import BROKEN, begin_trial, end_trial, pause_trial, why_ended
from search.spaces import disagreeing, excesses_of_a_network
from search.studies import StudySpec
from search.tasks import Dataset
from search.training.jobs import (
    MEASURE_JOBS,
    ORIGINAL,
    START,
    TRIAL_JOBS,
    AnyMeasureJob,
    Completion,
    EpochReport,
    EvaluateJob,
    Job,
    MeasureJob,
    MeasurementReport,
    PrepareJob,
    PrepareNetworkJob,
    Progress,
    Stored,
    TrialJob,
)
from search.training.network_jobs import COMPRESSED
from storage.accounts.quotas import Quotas
from storage.blobs.artifacts import ArtifactStore, restore_if_missing, store_stream
from storage.endings import AttemptCause, StudyCause, TrialCause
from storage.engine import Database
from storage.errors import ArtifactNotFound, Conflict, LeaseLost, NotFound, StoredBytesDamaged
from storage.garbage_collect import garbage_collect
from storage.records import (
    ArtifactRecord,
    AttemptKind,
    AttemptRecord,
    AttemptState,
    MeasurementRecord,
    MetricRecord,
    StudyEnding,
    StudyRecord,
    TrialOrigin,
    TrialOutcome,
    TrialState,
)
from storage.repositories.artifact_rows import ArtifactRows
from storage.repositories.attempts import Attempts, lost
from storage.repositories.events import Events
from storage.repositories.measurements import Measurements
from storage.repositories.metrics import Metrics
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials
from storage.repositories.uploads import Datasets, UploadedModels

_log = logging.getLogger(__name__)

LAST_WORDS = timedelta(minutes=10)
"""How long after its end an attempt's log may still arrive."""

_JOB: TypeAdapter[Job] = TypeAdapter(Job)
_JOBS: dict[str, tuple[Mapping[str, Any], Job]] = {}
"""What attempts have said something lately, with their jobs as stored and as read."""
_MOST_JOBS = 1024
_ENDS: Mapping[str, TrialState] = {
    "complete": TrialState.COMPLETE,
    "stopped": TrialState.STOPPED,
    "infeasible": TrialState.INFEASIBLE,
}
_CAUSES: Mapping[str, AttemptCause] = {
    "complete": AttemptCause.COMPLETE,
    "stopped": AttemptCause.STOPPED,
    "paused": AttemptCause.TRIAL_PAUSED,
    "infeasible": AttemptCause.INFEASIBLE,
    "failed": AttemptCause.FAILED,
    "data": AttemptCause.DATA,
}
_LONGEST_REASON = 1000
OF_THE_LEASE = {"stood_still_seconds", "held_seconds"}
"""What a report says of the lease, and not of the trial."""


def token_digest(token: str) -> str:
    """What is stored of a lease token. A plain hash is enough for 256 random bits."""
    return hashlib.sha256(token.encode()).hexdigest()


def measurement_id(attempt_id: str, trial: int) -> str:
    """What the measurement of a trial is called that this attempt makes."""
    return f"{attempt_id}-{trial}"


class AttemptHandler:
    """Gives out and takes files of attempts that are too large for a word.

    All methods raise `LeaseLost` when the token's lease is not held any more. The one that takes a
    file raises `ReportRefused` when it is none that its trial can have: nothing of it is stored,
    and the attempt has ended as failed by its own doing.
    """

    def __init__(self, database: Database, store: ArtifactStore, *, lease_seconds: float) -> None:
        self._database = database
        self._store = store
        self._lease_seconds = lease_seconds

    def open_artifact(
        self, attempt_id: str, token: str, role: str
    ) -> tuple[BinaryIO, ArtifactRecord]:
        """The trial's stored bytes of a role, or the checkpoint that it starts from.

        Raises:
            ArtifactNotFound: the trial has none, or what it would go on from is damaged.
        """
        if role == ORIGINAL:
            return self._open_original(attempt_id, token)
        with self._database.read() as session:
            attempt = _authenticate(session, attempt_id, token)
            number, stored_as = trial_of(attempt), role
            if role == START:
                # Bytes that a trial of the same study stored, and no other's.
                continued = Trials(session).get(attempt.study_id, number).continues
                if continued is None:
                    raise ArtifactNotFound(f"trial {number} continues no other")
                number, stored_as = continued, CHECKPOINT
            artifact = ArtifactRows(session).of_trial(attempt.study_id, number).get(stored_as)
        if artifact is None:
            raise ArtifactNotFound(f"trial {number} has no {stored_as}")
        return self._opened(artifact.sha256), artifact

    def _opened(self, sha256: str) -> BinaryIO:
        """Bytes that are whole, for a worker: damaged ones are as good as none.

        One that has nothing to resume from begins anew, and one that misses something else says so;
        to ask again would bring the same.

        Raises:
            ArtifactNotFound: there are none.
        """
        try:
            return self._store.open_reader(sha256)
        except StoredBytesDamaged as damaged:
            _log.error("stored bytes are damaged", extra={"reason": str(damaged)})
            raise ArtifactNotFound(str(damaged)) from damaged

    def _open_original(self, attempt_id: str, token: str) -> tuple[BinaryIO, ArtifactRecord]:
        """The checkpoint of the model that the attempt's own study compresses, and of no other."""
        with self._database.read() as session:
            attempt = _authenticate(session, attempt_id, token)
            study = Studies(session).get(attempt.study_id)
        model_id = StudySpec.model_validate(study.spec).compressed_model
        if model_id is None:
            raise ArtifactNotFound(f"study {study.id!r} compresses no model")
        with self._database.of(study.tenant).read() as session:
            try:
                model = UploadedModels(session).get(model_id)
            except NotFound as error:
                raise ArtifactNotFound(str(error)) from error
        artifact = ArtifactRecord(sha256=model.sha256, size=model.size, created_at=model.created_at)
        return self._opened(artifact.sha256), artifact

    def open_dataset(
        self, attempt_id: str, token: str, dataset_id: str
    ) -> tuple[BinaryIO, str, int]:
        """The upload that the attempt's own job names: its bytes, their SHA-256 and how many.

        Raises:
            NotFound: the job names another one, or none, or it was deleted.
        """
        with self._database.read() as session:
            attempt = _authenticate(session, attempt_id, token)
            if not _reads(_JOB.validate_python(attempt.job), dataset_id):
                raise NotFound(f"the job of attempt {attempt_id} names no data set {dataset_id!r}")
            tenant = Studies(session).get(attempt.study_id).tenant
        with self._database.of(tenant).read() as session:
            digest = Datasets(session).get(dataset_id).container_sha256
        return self._opened(digest), digest, self._store.size(digest)

    def store_artifact(
        self, attempt_id: str, token: str, role: str, stream: BinaryIO, *, sha256: str | None
    ) -> Stored:
        """Store bytes for the trial: checked first, then the bytes, whole, then their row.

        Raises:
            Conflict: the role is none that a worker stores.
            ReportRefused: the bytes are none that this trial can have; see `check_artifact`.
            ArtifactDamaged: the bytes do not have the digest that was sent with them.
            StoredBytesReached: the study's tenant has no room left. What is stored last may go over
                its quota, so that what it has tells whether more is taken
                (`search.running.store_watch`).
        """
        if role not in ROLES:
            raise Conflict(f"a worker stores {', '.join(ROLES)}, not {role!r}")
        with self._database.read() as session:
            attempt = _authenticate(session, attempt_id, token)
            job = trial_job_of(attempt)
            refuse_if_full(session, Studies(session).get(attempt.study_id))
        with self._refusing(attempt_id, token):
            artifact = store_stream(
                self._store,
                stream,
                _now(),
                expected_sha256=sha256,
                check=lambda content: check_artifact(role, content, job),
            )
        with self._database.write() as session:
            attempt = _authenticate(session, attempt_id, token)
            ArtifactRows(session).lock_names()
            refuse_if_full(session, Studies(session).get(attempt.study_id))
            before = ArtifactRows(session).link(attempt.study_id, trial_of(attempt), role, artifact)
            restore_if_missing(self._store, artifact.sha256, stream)
            Attempts(session).renew(
                attempt_id,
                until=_now() + timedelta(seconds=self._lease_seconds),
                stood_still_seconds=None,
                held_seconds=None,
            )
        if before:
            garbage_collect(self._database, self._store, before)
        return Stored(sha256=artifact.sha256, size=artifact.size)

    @contextmanager
    def _refusing(self, attempt_id: str, token: str) -> Generator[None]:
        """End an attempt that says what cannot be; what else it said is undone before."""
        try:
            yield
        except ReportRefused as refused:
            with suppress(LeaseLost), self._database.write() as session:
                impossible(session, _authenticate(session, attempt_id, token), refused)
            raise


def tell_progress(session: Session, attempt: AttemptRecord, body: Progress) -> None:
    """Tell how far a download is."""
    Events(session).append(attempt.study_id, "download", body.model_dump(), _now())


def checked_epoch(
    attempt: AttemptRecord, job: TrialJob, body: EpochReport, *, reported: Container[int]
) -> MetricRecord:
    """What is to be stored of one epoch of a curve.

    `reported` tells of the epoch before whether it is stored.

    Raises:
        ReportRefused: it cannot be.
    """
    check_epoch(body, job, reported=reported.__contains__)
    check_seconds({"seconds": body.seconds}, passed=_now() - attempt.started_at)
    return MetricRecord(**body.model_dump(exclude=OF_THE_LEASE), attempt=attempt.number)


_NOT_TOLD = ("attempt", "probes")
"""What events do not tell of an epoch: whose word it was, and what may be a thousand rows."""


def store_epochs(
    session: Session, study_id: str, metrics: Sequence[tuple[int, MetricRecord]]
) -> None:
    """Store epochs of a study's curves, each with its trial's number, and tell of them."""
    Metrics(session).put_all(study_id, metrics)
    Trials(session).set_all_epochs(study_id, {number: one.epoch for number, one in metrics})
    reports = [
        {"trial": number, **{n: value for n, value in vars(one).items() if n not in _NOT_TOLD}}
        for number, one in metrics
    ]
    Events(session).append_all(study_id, "epoch", reports, _now())


def judge_epoch(
    session: Session,
    study: StudyRecord,
    spec: StudySpec,
    number: int,
    epoch: int,
    *,
    is_new: bool,
) -> Order | None:
    """What a trial is to do whose epoch was just stored; null while it goes on.

    `is_new` says that the epoch was not stored before. One that uses up `total_epochs` ends the
    study.
    """
    total = spec.budget.total_epochs
    if total is not None and Metrics(session).epochs_trained(study.id) >= total:
        Studies(session).set_ending(study.id, StudyCause.BUDGET, "total_epochs")
    is_new = is_new and study.ending is None
    return judge(session, study, spec, number, epoch, is_new=is_new)


def store_measurement(
    session: Session,
    attempt: AttemptRecord,
    study: StudyRecord,
    job: AnyMeasureJob,
    body: MeasurementReport,
) -> None:
    """Store a measurement, and give it to every waiting trial of the same shape.

    Raises:
        ReportRefused: it cannot be.
    """
    now = _now()
    check_measurement(body, job)
    check_seconds({"seconds": body.seconds}, passed=now - attempt.started_at)
    measurement = MeasurementRecord(
        id=measurement_id(attempt.id, body.trial),
        study_id=study.id,
        trial=body.trial,
        shape_key=body.shape_key,
        device=body.device,
        samples_per_second=body.samples_per_second,
        ratio=body.ratio,
        latency_p50=body.latency_p50,
        latency_p99=body.latency_p99,
        record={**body.record, "machine": attempt.machine},
        seconds=body.seconds,
        created_at=now,
    )
    Measurements(session).add(study.id, measurement)
    Trials(session).share_throughput(study.id, measurement)
    Events(session).append(study.id, "measurement", body.model_dump(exclude={"record"}), now)


def begin(session: Session, attempt: AttemptRecord, waited_seconds: float) -> AttemptRecord:
    """Have an assigned attempt run, and its trial with it.

    It began so many seconds after it was offered, and not later than now.

    Raises:
        LeaseLost: it is assigned no more.
        Conflict: its trial has ended.
    """
    at = min(_now(), attempt.started_at + timedelta(seconds=waited_seconds))
    if not Attempts(session).begin(attempt.id, at=at):
        raise lost(attempt.id)
    begin_trial(session, Trials(session).get(attempt.study_id, trial_of(attempt)))
    return replace(attempt, state=AttemptState.RUNNING, started_at=at)


def finish(session: Session, attempt: AttemptRecord, study: StudyRecord, body: Completion) -> None:
    """End an attempt as its last word says, and its trial with it unless it failed.

    Raises:
        ReportRefused: it cannot be.
        Conflict: a complete trial whose checkpoint or report is not stored.
    """
    now, attempts = _now(), Attempts(session)
    _check_completion(session, attempt, body, at=now)
    attempts.renew(
        attempt.id,
        until=now,
        stood_still_seconds=body.stood_still_seconds,
        held_seconds=body.held_seconds,
    )
    attempts.end(
        attempt.id,
        state=AttemptState.ENDED,
        at=now,
        cause=_CAUSES[body.outcome],
        detail=body.reason,
    )
    if attempt.kind == AttemptKind.PREPARE and body.outcome == "complete":
        Studies(session).set_prepared(study.id, body.prepared or {})
    if attempt.kind == AttemptKind.TRAIN and body.outcome in _ENDS:
        _end_trial(session, attempt, body, ending=study)
    if attempt.kind == AttemptKind.TRAIN and body.outcome == "paused":
        _pause_trial(session, attempt, body)


def impossible(session: Session, attempt: AttemptRecord, refused: ReportRefused) -> str:
    """End an attempt that said what cannot be; what else it said is undone before."""
    detail = str(refused)[:_LONGEST_REASON]
    _log.warning("a worker said what cannot be", extra={"attempt_id": attempt.id, "reason": detail})
    Attempts(session).end(
        attempt.id,
        state=AttemptState.ENDED,
        at=_now(),
        cause=AttemptCause.IMPOSSIBLE,
        detail=detail,
    )
    return detail


def _end_trial(
    session: Session, attempt: AttemptRecord, body: Completion, *, ending: StudyEnding
) -> None:
    number = trial_of(attempt)
    trial = Trials(session).get(attempt.study_id, number)
    state = _ENDS[body.outcome]
    if state == TrialState.STOPPED and ending.ending_cause not in (None, StudyCause.BUDGET):
        state = TrialState.CANCELLED
    stored = ArtifactRows(session).of_trial(attempt.study_id, number)
    job = trial_job_of(attempt)
    missing = [role for role in job.needed_roles if role not in stored]
    if state == TrialState.COMPLETE and missing:
        raise Conflict(f"trial {number} is not complete without its {' and '.join(missing)}")
    cause, detail = why_ended(body, state, trial, ending)
    # An original is over its limits before and after it was measured.
    violation = BROKEN if state == TrialState.INFEASIBLE else trial.violation
    if state == TrialState.COMPLETE and isinstance(job, EvaluateJob):
        size = stored[COMPRESSED].size
        Trials(session).set_bytes(attempt.study_id, number, size)
        broken = broken_limits(session, attempt.study_id, job, body, size=size)
        if broken is not None and trial.origin != TrialOrigin.ORIGINAL:
            cause, (detail, violation) = TrialCause.LIMIT, broken
    end_trial(
        session,
        attempt.study_id,
        number,
        state=state,
        outcome=TrialOutcome.of(body, cause=cause, detail=detail, violation=violation),
        epochs_trained=body.epochs_trained,
    )


def broken_limits(
    session: Session, study_id: str, job: EvaluateJob, body: Completion, *, size: int
) -> tuple[str, float] | None:
    """The limit that a network's file breaks by what is known of it now: a sentence, and how far.

    Its size was predicted before, and may be a little more.
    """
    limits = StudySpec.model_validate(Studies(session).get(study_id).spec).limits
    exact = job.trial.model_copy(update={"bytes": size})
    over = [*excesses_of_a_network(limits, exact)]
    if (disagrees := disagreeing(limits, body.agreement)) is not None:
        over.append(disagrees)
    if not over:
        return None
    sentences = "; ".join(sentence for sentence, _ in over)
    return sentences, max(excess for _, excess in over)


def _pause_trial(session: Session, attempt: AttemptRecord, body: Completion) -> None:
    number = trial_of(attempt)
    stored = ArtifactRows(session).of_trial(attempt.study_id, number)
    missing = [role for role in ("resume", "checkpoint", "report") if role not in stored]
    if missing:
        raise Conflict(f"trial {number} is not paused without its {' and '.join(missing)}")
    pause_trial(session, attempt.study_id, number, body)


def _authenticate(session: Session, attempt_id: str, token: str) -> AttemptRecord:
    return Attempts(session).authenticate(attempt_id, token_digest(token))


def refuse_if_full(session: Session, study: StudyRecord) -> None:
    """Refuse bytes of a tenant that has no room left.

    Raises:
        StoredBytesReached: it has not.
    """
    Quotas(session).make_room("stored_bytes", tenant=study.tenant)


def trial_of(attempt: AttemptRecord) -> int:
    """The number of the attempt's trial.

    Raises:
        Conflict: it is at a job of the whole study.
    """
    if attempt.trial is None:
        raise Conflict(f"attempt {attempt.id} ({attempt.kind}) belongs to no trial")
    return attempt.trial


def trial_job_of(attempt: AttemptRecord) -> TrialJob:
    """What the attempt is to do for its trial."""
    job = read_job(attempt)
    if not isinstance(job, TRIAL_JOBS):
        raise Conflict(f"attempt {attempt.id} ({attempt.kind}) has another kind of job than that")
    return job


def measure_job_of(attempt: AttemptRecord) -> AnyMeasureJob:
    """What the attempt is to measure."""
    job = read_job(attempt)
    if not isinstance(job, MEASURE_JOBS):
        raise Conflict(f"attempt {attempt.id} ({attempt.kind}) has another kind of job than that")
    return job


def read_job(attempt: AttemptRecord) -> Job:
    """The attempt's job, which is read once for all that the attempt says."""
    known = _JOBS.get(attempt.id)
    if known is None or known[0] != attempt.job:
        known = (attempt.job, _JOB.validate_python(attempt.job))
        if len(_JOBS) >= _MOST_JOBS:
            _JOBS.clear()
        _JOBS[attempt.id] = known
    return known[1]


def _check_completion(
    session: Session, attempt: AttemptRecord, body: Completion, *, at: datetime
) -> None:
    """Hold a last word against the job and what was said before.

    Raises:
        ReportRefused: it cannot be.
    """
    check_seconds(body.model_dump(include=OF_THE_LEASE), passed=at - attempt.started_at)
    job = read_job(attempt)
    if isinstance(job, PrepareJob | PrepareNetworkJob):
        check_prepared(body, job)
    if isinstance(job, TRIAL_JOBS):
        curve = Metrics(session).curve(attempt.study_id, trial_of(attempt))
        check_training(body, job, {row.epoch: row.validation for row in curve})


def _reads(job: Job, dataset_id: str) -> bool:
    """Whether the job is done on this upload."""
    task = None if isinstance(job, MeasureJob) else job.task
    if isinstance(task, ModelOutputs):
        return task.data == dataset_id
    return isinstance(task, Dataset) and task.id == dataset_id


def _now() -> datetime:
    return datetime.now(UTC)
