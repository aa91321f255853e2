"""What a worker's word does: the only place where a running attempt changes our tables.

Every call proves the attempt's lease token first and does all of its work in one transaction, so
that a late word of an older attempt changes nothing.
"""

import hashlib
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import BinaryIO

from pydantic import TypeAdapter
from sqlalchemy.orm import Session

from search.early_stopping import judge, reason_to_stop
from search.exports import CHECKPOINT
from search.spec import StudySpec
from search.tasks import Dataset
from search.wire import (
    CONVERSION,
    ORIGINAL,
    START,
    Completion,
    EpochReport,
    Heartbeat,
    Job,
    MeasureJob,
    MeasurementReport,
    Progress,
    Stored,
    Verdict,
)
from storage.artifact_rows import ArtifactRows
from storage.artifacts import ArtifactStore, restore_if_missing, store_stream
from storage.attempt_logs import AttemptLogs
from storage.attempts import Attempts
from storage.datasets import Datasets
from storage.engine import Database
from storage.errors import ArtifactNotFound, Conflict, NotFound
from storage.events import Events
from storage.measurements import Measurements
from storage.metrics import Metrics
from storage.records import (
    ArtifactRecord,
    AttemptKind,
    AttemptRecord,
    AttemptState,
    MeasurementRecord,
    MetricRecord,
    StudyRecord,
    TrialRecord,
    TrialState,
)
from storage.studies import Studies
from storage.trials import Trials
from storage.unnamed import remove_unnamed
from storage.uploaded_models import UploadedModels

_log = logging.getLogger(__name__)

BUDGET = "budget"
"""The reason of trials that were stopped because a budget of the study was used up."""

ROLES = ("checkpoint", "report", "resume", CONVERSION)
"""What a worker may store for its trial."""

_LAST_WORDS = timedelta(minutes=10)
"""How long after its end an attempt's log may still arrive."""

_JOB: TypeAdapter[Job] = TypeAdapter(Job)
_ENDS: Mapping[str, TrialState] = {
    "complete": TrialState.COMPLETE,
    "stopped": TrialState.STOPPED,
    "infeasible": TrialState.INFEASIBLE,
}
_OF_THE_LEASE = {"stood_still_seconds", "held_seconds"}
BROKEN = 1.0
"""The violation of a trial that diverged or ran out of memory: broken, with no amount to tell."""


def token_digest(token: str) -> str:
    """What is stored of a lease token. A plain hash is enough for 256 random bits."""
    return hashlib.sha256(token.encode()).hexdigest()


def measurement_id(attempt_id: str, trial: int) -> str:
    """What the measurement of a trial is called that this attempt makes."""
    return f"{attempt_id}-{trial}"


class AttemptDesk:
    """Takes the words of workers.

    All methods raise `LeaseLost` when the token's lease is not held any more.
    """

    def __init__(self, database: Database, store: ArtifactStore, *, lease_seconds: float) -> None:
        self._database = database
        self._store = store
        self._lease_seconds = lease_seconds

    def job(self, attempt_id: str, token: str) -> Job:
        """What the attempt is to do."""
        with self._database.read() as session:
            return _JOB.validate_python(_authenticate(session, attempt_id, token).job)

    def heartbeat(self, attempt_id: str, token: str, body: Heartbeat) -> Verdict:
        """Renew the lease."""
        with self._database.write() as session:
            ending = Attempts(session).keep_alive(
                attempt_id,
                token_digest(token),
                until=_now() + timedelta(seconds=self._lease_seconds),
                stood_still_seconds=body.stood_still_seconds,
                held_seconds=body.held_seconds,
            )
        return self._verdict(ending)

    def progress(self, attempt_id: str, token: str, body: Progress) -> Verdict:
        """Tell the user how far a download is."""

        def tell(session: Session, attempt: AttemptRecord, _study: StudyRecord) -> None:
            Events(session).append(attempt.study_id, "download", body.model_dump(), _now())

        return self._renewing(attempt_id, token, tell)

    def epoch(self, attempt_id: str, token: str, body: EpochReport) -> Verdict:
        """Store one epoch of the trial's curve; the last epoch of a budget ends the asking.

        An epoch that is stored for the first time may be the trial's last by the study's rule.
        """

        def store(session: Session, attempt: AttemptRecord, study: StudyRecord) -> str | None:
            number = _trial_of(attempt)
            is_new = not Metrics(session).has(study.id, number, body.epoch)
            row = MetricRecord(
                epoch=body.epoch,
                train_loss=body.train_loss,
                validation=body.validation,
                spectral_margin=body.spectral_margin,
                gradient_first=body.gradient_first,
                gradient_last=body.gradient_last,
                recovered_batches=body.recovered_batches,
                seconds=body.seconds,
                attempt=attempt.number,
            )
            Metrics(session).put(study.id, number, row)
            Trials(session).set_epochs(study.id, number, body.epoch)
            payload = {"trial": number, **body.model_dump(exclude=_OF_THE_LEASE)}
            Events(session).append(study.id, "epoch", payload, _now())
            spec = StudySpec.model_validate(study.spec)
            total = spec.budget.total_epochs
            if total is not None and Metrics(session).epochs_trained(study.id) >= total:
                Studies(session).set_ending(study.id, f"{BUDGET}: total_epochs")
            is_new = is_new and study.ending is None
            return judge(session, study, spec, number, body.epoch, is_new=is_new)

        return self._renewing(attempt_id, token, store, body)

    def measurement(self, attempt_id: str, token: str, body: MeasurementReport) -> Verdict:
        """Store a throughput measurement, and give it to every waiting trial of the same shape."""

        def store(session: Session, attempt: AttemptRecord, study: StudyRecord) -> None:
            now = _now()
            measurement = MeasurementRecord(
                id=measurement_id(attempt.id, body.trial),
                study_id=study.id,
                trial=body.trial,
                shape_key=body.shape_key,
                device=body.device,
                samples_per_second=body.samples_per_second,
                ratio=body.ratio,
                record={**body.record, "machine": attempt.machine},
                seconds=body.seconds,
                created_at=now,
            )
            Measurements(session).add(study.id, measurement)
            Trials(session).share_throughput(study.id, measurement)
            payload = body.model_dump(exclude={"record"})
            Events(session).append(study.id, "measurement", payload, now)

        return self._renewing(attempt_id, token, store)

    def open_artifact(
        self, attempt_id: str, token: str, role: str
    ) -> tuple[BinaryIO, ArtifactRecord]:
        """The trial's stored bytes of a role, or the checkpoint that it starts from.

        Raises:
            ArtifactNotFound: the trial has none.
        """
        if role == ORIGINAL:
            return self._open_original(attempt_id, token)
        with self._database.read() as session:
            attempt = _authenticate(session, attempt_id, token)
            number, stored_as = _trial_of(attempt), role
            if role == START:
                # Bytes that a trial of the same study stored, and no other's.
                continued = Trials(session).get(attempt.study_id, number).continues
                if continued is None:
                    raise ArtifactNotFound(f"trial {number} continues no other")
                number, stored_as = continued, CHECKPOINT
            artifact = ArtifactRows(session).of_trial(attempt.study_id, number).get(stored_as)
        if artifact is None:
            raise ArtifactNotFound(f"trial {number} has no {stored_as}")
        return self._store.open_reader(artifact.sha256), artifact

    def _open_original(self, attempt_id: str, token: str) -> tuple[BinaryIO, ArtifactRecord]:
        """The checkpoint of the model that the attempt's own study compresses, and of no other."""
        with self._database.read() as session:
            attempt = _authenticate(session, attempt_id, token)
            study = Studies(session).get(attempt.study_id)
        compress = StudySpec.model_validate(study.spec).compress
        if compress is None:
            raise ArtifactNotFound(f"study {study.id!r} compresses no model")
        with self._database.of(study.tenant).read() as session:
            try:
                model = UploadedModels(session).get(compress.model)
            except NotFound as error:
                raise ArtifactNotFound(str(error)) from error
        artifact = ArtifactRecord(sha256=model.sha256, size=model.size, created_at=model.created_at)
        return self._store.open_reader(artifact.sha256), artifact

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
        return self._store.open_reader(digest), digest, self._store.size(digest)

    def store_artifact(
        self, attempt_id: str, token: str, role: str, stream: BinaryIO, *, sha256: str | None
    ) -> Stored:
        """Store bytes for the trial: the bytes first, whole, then the row that names them.

        Raises:
            Conflict: the role is none that a worker stores.
            ArtifactDamaged: the bytes do not have the digest that was sent with them.
        """
        if role not in ROLES:
            raise Conflict(f"a worker stores {', '.join(ROLES)}, not {role!r}")
        with self._database.read() as session:
            _trial_of(_authenticate(session, attempt_id, token))
        artifact = store_stream(self._store, stream, _now(), expected_sha256=sha256)
        before: list[str] = []

        def name(session: Session, attempt: AttemptRecord, study: StudyRecord) -> None:
            before[:] = ArtifactRows(session).link(study.id, _trial_of(attempt), role, artifact)
            restore_if_missing(self._store, artifact.sha256, stream)

        self._renewing(attempt_id, token, name)
        if before:
            remove_unnamed(self._database, self._store, before)
        return Stored(sha256=artifact.sha256, size=artifact.size)

    def store_log(self, attempt_id: str, token: str, stream: BinaryIO, *, cut: int) -> None:
        """Keep the end of what the attempt wrote; its last words come after its own last report.

        Raises:
            LeaseLost: the token is not the attempt's last, or the attempt ended long ago.
        """
        now = _now()
        digest, since = token_digest(token), now - _LAST_WORDS
        with self._database.read() as session:
            Attempts(session).belonging(attempt_id, digest, ended_since=since)
        artifact = store_stream(self._store, stream, now)
        with self._database.write() as session:
            attempt = Attempts(session).belonging(attempt_id, digest, ended_since=since)
            before = AttemptLogs(session).put(
                attempt_id, study_id=attempt.study_id, artifact=artifact, cut=cut, at=now
            )
            restore_if_missing(self._store, artifact.sha256, stream)
        if before:
            remove_unnamed(self._database, self._store, before)

    def complete(self, attempt_id: str, token: str, body: Completion) -> Verdict:
        """End the attempt, and its trial with it unless it failed.

        The coordinator decides about another attempt.

        Saying the same again is harmless.

        Raises:
            Conflict: a complete trial whose checkpoint or report is not stored yet.
        """
        with self._database.write() as session:
            attempts = Attempts(session)
            if attempts.had_its_last_word(attempt_id, token_digest(token)):
                return self._verdict(None)
            attempt = attempts.authenticate(attempt_id, token_digest(token))
            study = Studies(session).get(attempt.study_id)
            now = _now()
            attempts.renew(
                attempt_id,
                until=now,
                stood_still_seconds=body.stood_still_seconds,
                held_seconds=body.held_seconds,
            )
            attempts.end(attempt_id, state=AttemptState.ENDED, at=now, reason=_attempt_reason(body))
            if attempt.kind == AttemptKind.PREPARE and body.outcome == "complete":
                Studies(session).set_prepared(study.id, body.prepared or {})
            if attempt.kind == AttemptKind.TRAIN and body.outcome in _ENDS:
                self._end_trial(session, attempt, body, ending=study.ending)
            return self._verdict(None)

    def _end_trial(
        self, session: Session, attempt: AttemptRecord, body: Completion, *, ending: str | None
    ) -> None:
        number = _trial_of(attempt)
        trial = Trials(session).get(attempt.study_id, number)
        state = _ENDS[body.outcome]
        if state == TrialState.STOPPED and ending is not None and not ending.startswith(BUDGET):
            state = TrialState.CANCELLED
        stored = ArtifactRows(session).of_trial(attempt.study_id, number)
        missing = [role for role in ("checkpoint", "report") if role not in stored]
        if state == TrialState.COMPLETE and missing:
            raise Conflict(f"trial {number} is not complete without its {' and '.join(missing)}")
        end_trial(
            session,
            attempt.study_id,
            number,
            state=state,
            reason=_trial_reason(body, state, trial),
            quality=body.quality,
            test_quality=body.test_quality,
            test_metrics=body.test_metrics,
            best_epoch=body.best_epoch,
            epochs_trained=body.epochs_trained,
            # An original is over its limits before and after it was measured.
            violation=BROKEN if state == TrialState.INFEASIBLE else trial.violation,
        )

    def _renewing(
        self,
        attempt_id: str,
        token: str,
        work: Callable[[Session, AttemptRecord, StudyRecord], str | None],
        body: EpochReport | None = None,
    ) -> Verdict:
        """Do the work and renew the lease in one transaction.

        The verdict follows from the study after it, and from why the work says to stop.
        """
        with self._database.write() as session:
            attempt = _authenticate(session, attempt_id, token)
            reason = work(session, attempt, Studies(session).get(attempt.study_id))
            Attempts(session).renew(
                attempt_id,
                until=_now() + timedelta(seconds=self._lease_seconds),
                stood_still_seconds=None if body is None else body.stood_still_seconds,
                held_seconds=None if body is None else body.held_seconds,
            )
            ending = Studies(session).get(attempt.study_id).ending
        return self._verdict(ending, reason)

    def _verdict(self, ending: str | None, reason: str | None = None) -> Verdict:
        if ending is not None:
            reason = BUDGET if ending.startswith(BUDGET) else ending
        if reason is None:
            return Verdict(lease_seconds=self._lease_seconds)
        return Verdict(verdict="stop", reason=reason, lease_seconds=self._lease_seconds)


def end_trial(
    session: Session,
    study_id: str,
    number: int,
    *,
    state: TrialState,
    reason: str | None = None,
    quality: float | None = None,
    test_quality: float | None = None,
    test_metrics: Mapping[str, float] | None = None,
    best_epoch: int | None = None,
    epochs_trained: int | None = None,
    violation: float | None = None,
) -> TrialRecord:
    """End a trial and tell so; it ends once.

    Raises:
        Conflict: the trial has ended before.
    """
    now = _now()
    trial = Trials(session).end(
        study_id,
        number,
        state=state,
        at=now,
        reason=reason,
        quality=quality,
        test_quality=test_quality,
        test_metrics=test_metrics,
        best_epoch=best_epoch,
        epochs_trained=epochs_trained,
        violation=violation,
    )
    announce_trial(session, trial, at=now)
    return trial


def announce_trial(session: Session, trial: TrialRecord, *, at: datetime) -> None:
    """Write the event that tells where a trial stands."""
    payload = {
        "trial": trial.number,
        "state": trial.state,
        "reason": trial.reason,
        "architecture": trial.architecture,
        "parametrization": trial.parametrization,
        "quality": trial.quality,
        "parameters": trial.parameters,
        "throughput": trial.throughput,
        "throughput_ratio": trial.throughput_ratio,
    }
    Events(session).append(trial.study_id, "trial", payload, at)


def _authenticate(session: Session, attempt_id: str, token: str) -> AttemptRecord:
    return Attempts(session).authenticate(attempt_id, token_digest(token))


def _trial_of(attempt: AttemptRecord) -> int:
    if attempt.trial is None:
        raise Conflict(f"attempt {attempt.id} ({attempt.kind}) belongs to no trial")
    return attempt.trial


def _reads(job: Job, dataset_id: str) -> bool:
    """Whether the job is done on this upload."""
    task = None if isinstance(job, MeasureJob) else job.task
    return isinstance(task, Dataset) and task.id == dataset_id


def _attempt_reason(body: Completion) -> str:
    return body.outcome if body.reason is None else f"{body.outcome}: {body.reason}"


def _trial_reason(body: Completion, state: TrialState, trial: TrialRecord) -> str | None:
    """The sentence of the rule that stopped it, if one did, whatever else came meanwhile."""
    stopped = reason_to_stop(trial, body.epochs_trained)
    return stopped if state == TrialState.STOPPED and stopped is not None else body.reason


def _now() -> datetime:
    return datetime.now(UTC)
