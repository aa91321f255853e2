"""A data directory with real rows and files, for tests of the API over it."""

import hashlib
import io
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from models.checkpoint import save_bytes
from models.report import parameter_report
from search import studies
from search.attempts import announce_trial, token_digest
from search.draws import CornerSource
from search.space import SearchSpace
from search.spec import StudySpec
from search.tasks import DataSources
from search.wire import TrainJob
from service.settings import Settings
from storage.artifact_rows import ArtifactRows
from storage.artifacts import store_stream
from storage.attempts import Attempts
from storage.engine import Database
from storage.events import Events
from storage.measurements import Measurements
from storage.metrics import Metrics
from storage.records import (
    LOCAL,
    ArtifactRecord,
    AttemptKind,
    AttemptRecord,
    AttemptState,
    MeasurementRecord,
    MetricRecord,
    StudyRecord,
    StudyState,
    TrialOrigin,
    TrialRecord,
    TrialState,
)
from storage.stores import open_store
from storage.trials import Trials

SMALL_SPEC: dict[str, Any] = {
    "name": "small digits",
    "task": {"kind": "digits"},
    "architectures": ["rnn"],
    "parametrizations": ["dense", "low_rank"],
    "space": {"hidden_size": {"low": 8, "high": 16, "step": 8}},
    "budget": {"trials": 4, "epochs": 2},
    "seed": 3,
}


@dataclass(frozen=True)
class Lease:
    """A running attempt and its token."""

    attempt: str
    token: str

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def path(self, call: str) -> str:
        return f"/v1/attempts/{self.attempt}/{call}"


class Site:
    """A migrated database and a store, filled as the coordinator and its workers would."""

    def __init__(self, folder: Path, **given: Any) -> None:
        self.settings = Settings(data_dir=folder, **{"event_poll_seconds": 0.02, **given})
        folder.mkdir(parents=True, exist_ok=True)
        self.database = Database(self.settings.database_url)
        self.database.migrate()
        self.store = open_store(self.settings.artifacts_place)
        self.sources = DataSources(cache=self.settings.cache_dir, folder=self.settings.data_sets)

    def close(self) -> None:
        self.database.dispose()

    def study(self, *, tenant: str = LOCAL, **changes: Any) -> StudyRecord:
        spec = StudySpec.model_validate({**SMALL_SPEC, **changes})
        return studies.submit(self.database.of(tenant), spec, sources=self.sources)

    def run(self, study: StudyRecord) -> None:
        self._enter(study, StudyState.RUNNING)

    def finish(self, study: StudyRecord, state: StudyState = StudyState.FINISHED) -> None:
        self._enter(study, state)

    def _enter(self, study: StudyRecord, state: StudyState) -> None:
        with self.database.write() as session:
            studies.enter(session, study.id, state, at=now())

    def trial(self, study: StudyRecord, number: int, **given: Any) -> TrialRecord:
        """A trial with the state and values given; a complete one has its checkpoint and report."""
        spec = StudySpec.model_validate(study.spec)
        drawn = SearchSpace(spec).draw(CornerSource(highest=number % 2 == 1))
        model = drawn.spec.model
        state = given.pop("state", TrialState.COMPLETE)
        measured = given.get("throughput") is not None
        record = TrialRecord(
            **{
                "study_id": study.id,
                "number": number,
                "state": TrialState.RUNNING if state.has_ended else state,
                "reason": None,
                "architecture": drawn.candidate.architecture,
                "parametrization": drawn.candidate.parametrization,
                "hyperparameters": dict(drawn.hyperparameters),
                "drawn": dict(drawn.drawn),
                "spec": drawn.spec.model_dump(mode="json"),
                "parameters": model.parameter_count(),
                "dense_parameters": model.dense_twin().parameter_count(),
                "shape_key": model.shape_key(),
                "violation": None,
                "quality": None,
                "test_quality": None,
                "test_metrics": {},
                "origin": TrialOrigin.SAMPLER,
                "repeats": None,
                "continues": None,
                "stopping": None,
                "best_epoch": None,
                "epochs_trained": 0,
                "throughput": None,
                "throughput_ratio": None,
                "measurement_id": None,
                "dispatched": state != TrialState.QUEUED,
                "created_at": now(),
                "started_at": now() if state != TrialState.QUEUED else None,
                "finished_at": None,
                "told_at": None,
                **{name: given[name] for name in ("parameters", "continues") if name in given},
            }
        )
        with self.database.write() as session:
            Trials(session).add(record)
            if measured:
                measurement = self._measurement(
                    record, given["throughput"], given.get("ratio", 0.5)
                )
                Measurements(session).add(study.id, measurement)
                Trials(session).set_throughput(study.id, number, measurement)
            if state == TrialState.COMPLETE:
                for role, content in self._files(drawn.spec.model).items():
                    ArtifactRows(session).link(study.id, number, role, self.keep(content))
            if state.has_ended:
                ended = Trials(session).end(
                    study.id,
                    number,
                    state=state,
                    at=now(),
                    reason=given.get("reason"),
                    quality=given.get("quality"),
                    test_quality=given.get("test_quality"),
                    best_epoch=given.get("best_epoch"),
                )
                announce_trial(session, ended, at=now())
        with self.database.read() as session:
            return Trials(session).get(study.id, number)

    def lease(self, study: StudyRecord, number: int, *, attempt: int = 1) -> Lease:
        """A running attempt of a trial; one that ran before is lost."""
        with self.database.read() as session:
            trial = Trials(session).get(study.id, number)
        spec = StudySpec.model_validate(study.spec)
        job = TrainJob.model_validate(
            {"task": spec.task, "trial": trial.spec, "number": number, "epochs": 2}
        )
        lease = Lease(secrets.token_hex(8), secrets.token_urlsafe(32))
        record = AttemptRecord(
            id=lease.attempt,
            study_id=study.id,
            kind=AttemptKind.TRAIN,
            trial=number,
            number=attempt,
            state=AttemptState.RUNNING,
            reason=None,
            job=job.model_dump(mode="json"),
            slot="cpu-0",
            slot_share=1.0,
            device="cpu",
            lease_until=datetime(2100, 1, 1, tzinfo=UTC),
            started_at=now(),
            ended_at=None,
            stood_still_seconds=0.0,
        )
        with self.database.write() as session:
            for earlier in Attempts(session).running(study.id):
                if earlier.trial == number:
                    Attempts(session).end(earlier.id, state=AttemptState.LOST, at=now())
            Attempts(session).start(record, token_digest=token_digest(lease.token))
        return lease

    def epoch(self, study: StudyRecord, number: int, epoch: int) -> None:
        """One point of a learning curve."""
        row = MetricRecord(
            epoch=epoch,
            train_loss=1 / epoch,
            validation=0.5,
            spectral_margin=None,
            gradient_first=0.125,
            gradient_last=2.5,
            recovered_batches=2,
            seconds=0.1,
            attempt=1,
        )
        with self.database.write() as session:
            Metrics(session).put(study.id, number, row)

    def event(self, study: StudyRecord, **payload: Any) -> None:
        with self.database.write() as session:
            Events(session).append(study.id, "download", dict(payload), now())

    def keep(self, content: bytes) -> ArtifactRecord:
        return store_stream(self.store, io.BytesIO(content), now())

    def last_event(self, study: StudyRecord) -> int:
        with self.database.read() as session:
            return Events(session).latest([study.id])[study.id]

    def _files(self, model: Any) -> dict[str, bytes]:
        return {
            "checkpoint": save_bytes(model.build(seed=1), model),
            "report": parameter_report(model).model_dump_json().encode(),
        }

    def _measurement(self, trial: TrialRecord, speed: float, ratio: float) -> MeasurementRecord:
        return MeasurementRecord(
            id=f"{trial.study_id}-{trial.number}",
            study_id=trial.study_id,
            trial=trial.number,
            shape_key=f"{trial.shape_key}-{trial.number}",
            device="a test's CPU",
            samples_per_second=speed,
            ratio=ratio,
            record={"batch_size": 64, "threads": 1},
            seconds=0.5,
            created_at=now(),
        )


def now() -> datetime:
    return datetime.now(UTC)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
