"""A data directory with real rows and files, for tests of the API over it."""

import hashlib
import io
import secrets
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, TypeVar

from models.checkpoint import save_bytes
from models.report import parameter_report
from search.running.attempts import token_digest
from search.running.trial_endings import announce_trial
from search.spaces.draws import CornerSource
from search.spaces.space import SearchSpace
from search.studies import states as studies
from search.studies import submission
from search.studies.spec import StudySpec
from search.tasks import DataSources
from search.training.jobs import MeasureJob, PrepareJob, TrainJob
from service.settings import Settings
from storage.blobs.artifacts import store_stream
from storage.blobs.stores import open_store
from storage.records import (
    LOCAL,
    ArtifactRecord,
    AttemptKind,
    AttemptState,
    MeasurementRecord,
    StudyRecord,
    StudyState,
    TrialOutcome,
    TrialRecord,
    TrialState,
)
from storage.repositories.artifact_rows import ArtifactRows
from storage.repositories.attempts import Attempts
from storage.repositories.events import Events
from storage.repositories.measurements import Measurements
from storage.repositories.metrics import Metrics
from storage.repositories.trials import Trials
from tests.databases import migrated
from tests.storage.records import attempt as attempt_record
from tests.storage.records import measurement, metric, trial

SMALL_SPEC: dict[str, Any] = {
    "name": "small digits",
    "task": {"kind": "digits"},
    "architectures": ["rnn"],
    "parametrizations": ["dense", "low_rank"],
    "space": {"hidden_size": {"low": 8, "high": 16, "step": 8}},
    "budget": {"trials": 4, "epochs": 2},
    "seed": 3,
}


_OF_AN_OUTCOME = [field.name for field in fields(TrialOutcome)]

AnyJob = TypeVar("AnyJob", PrepareJob, MeasureJob, TrainJob)


@dataclass(frozen=True)
class Lease(Generic[AnyJob]):
    """A running attempt and its token."""

    attempt: str
    token: str
    job: AnyJob

    @property
    def headers(self) -> dict[str, str]:
        """What an agent shows with each of the attempt's files."""
        return {"Lease-Token": self.token}

    def path(self, call: str) -> str:
        """Where the attempt's agent, of whatever machine, sends and gets files."""
        return f"/v1/agents/{'a' * 16}/attempts/{self.attempt}/{call}"


class Site:
    """A migrated database and a store, filled as the coordinator and its workers would."""

    def __init__(self, folder: Path, **given: Any) -> None:
        self.settings = Settings(data_dir=folder, **{"event_poll_seconds": 0.02, **given})
        folder.mkdir(parents=True, exist_ok=True)
        self.database = migrated(self.settings.database_url)
        self.store = open_store(self.settings.artifacts_place)
        self.sources = DataSources(cache=self.settings.cache_dir, folder=self.settings.data_sets)

    def close(self) -> None:
        self.database.dispose()

    def study(self, *, tenant: str = LOCAL, **changes: Any) -> StudyRecord:
        spec = StudySpec.model_validate({**SMALL_SPEC, **changes})
        return submission.submit(self.database.of(tenant), spec, sources=self.sources)

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
        if "parametrization" in given:
            spec = spec.model_copy(update={"parametrizations": (given["parametrization"],)})
        drawn = SearchSpace(spec).draw(CornerSource(highest=number % 2 == 1))
        model = drawn.spec.model
        state = given.pop("state", TrialState.COMPLETE)
        measured = given.get("throughput") is not None
        record = trial(
            study.id,
            number,
            state=TrialState.RUNNING if state.has_ended else state,
            architecture=drawn.candidate.architecture,
            parametrization=drawn.candidate.parametrization,
            hyperparameters=dict(drawn.hyperparameters),
            drawn=dict(drawn.drawn),
            spec=drawn.spec.model_dump(mode="json"),
            parameters=given.get("parameters", model.parameter_count()),
            dense_parameters=model.dense_twin().parameter_count(),
            shape_key=model.shape_key(),
            continues=given.get("continues"),
            dispatched=state != TrialState.QUEUED,
            created_at=now(),
            started_at=now() if state != TrialState.QUEUED else None,
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
                    outcome=TrialOutcome(
                        detail=given.get("reason"),
                        **{name: given[name] for name in _OF_AN_OUTCOME if name in given},
                    ),
                )
                announce_trial(session, ended, at=now())
        with self.database.read() as session:
            return Trials(session).get(study.id, number)

    def lease(
        self, study: StudyRecord, number: int, *, attempt: int = 1, **given: Any
    ) -> Lease[TrainJob]:
        """A running attempt of a trial; one that ran before is lost."""
        with self.database.read() as session:
            trial = Trials(session).get(study.id, number)
        spec = StudySpec.model_validate(study.spec)
        job = TrainJob.model_validate(
            {
                "task": spec.task,
                "trial": trial.spec,
                "number": number,
                "epochs": spec.budget.epochs,
                "continues": trial.continues,
            }
        )
        return self.attempt(study, job, number=number, attempt=attempt, **given)

    def attempt(
        self,
        study: StudyRecord,
        job: AnyJob,
        *,
        number: int | None = None,
        attempt: int = 1,
        **given: Any,
    ) -> "Lease[AnyJob]":
        """A running attempt at any job; one that did the same before is lost."""
        lease = Lease(secrets.token_hex(8), secrets.token_urlsafe(32), job)
        kind = AttemptKind(job.kind)
        record = attempt_record(
            study.id,
            attempt,
            id=lease.attempt,
            kind=kind,
            trial=number,
            job=job.model_dump(mode="json"),
            lease_until=datetime(2100, 1, 1, tzinfo=UTC),
            started_at=now(),
            **given,
        )
        with self.database.write() as session:
            for earlier in Attempts(session).running(study.id):
                if (earlier.trial, earlier.kind) == (number, kind):
                    Attempts(session).end(earlier.id, state=AttemptState.LOST, at=now())
            Attempts(session).start(record, token_digest=token_digest(lease.token))
        return lease

    def epoch(self, study: StudyRecord, number: int, epoch: int, **given: Any) -> None:
        """One point of a learning curve."""
        usual = {"gradient_first": 0.125, "gradient_last": 2.5, "recovered_batches": 2}
        row = metric(epoch, **{**usual, **given})
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
        return measurement(
            trial.study_id,
            id=f"{trial.study_id}-{trial.number}",
            trial=trial.number,
            shape_key=f"{trial.shape_key}-{trial.number}",
            device="a test's CPU",
            samples_per_second=speed,
            ratio=ratio,
            record={"batch_size": 64, "threads": 1},
            created_at=now(),
        )


def now() -> datetime:
    return datetime.now(UTC)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
