"""Studies as training would have left them, of made-up results, through our own repositories.

One study is written trial by trial. What is to stand beside it, smaller studies and the same on
another database, are copies of its rows: so all sizes are of the same trials. The bytes that
artifact rows name are not stored.
"""

import hashlib
import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from search.fronts.hypervolumes import FRONT
from search.fronts.pareto import reference_point
from search.measuring.devices import device_model
from search.optuna_tables import open_storage
from search.running.trial_endings import announce_trial, end_trial
from search.samplers.modelling.configurations_drawn import RandomSource
from search.sampling.optuna_copy import OptunaCopy
from search.spaces.model_space import DrawnTrial
from search.spaces.space import SearchSpace
from search.studies import states as studies
from search.studies import submission
from search.studies.spec import StudySpec
from search.tasks import DataSources
from search.training.jobs import EpochReport, MeasurementReport, TrainJob
from storage.endings import AttemptCause, TrialCause
from storage.engine import Database
from storage.records import (
    ArtifactRecord,
    AttemptKind,
    AttemptRecord,
    AttemptState,
    Json,
    MeasurementRecord,
    MetricRecord,
    StudyRecord,
    StudyState,
    TrialOutcome,
    TrialRecord,
    TrialState,
)
from storage.repositories.artifact_rows import ArtifactRows
from storage.repositories.attempts import Attempts
from storage.repositories.events import Events
from storage.repositories.exchanges import Exchanges
from storage.repositories.measurements import Measurements
from storage.repositories.metrics import Metrics
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials
from tests.storage.records import trial

EPOCHS: Final = 10
_AT_ONCE = 50
_VALIDATION_SAMPLES = 400
_REFUSED, _DIVERGED = 0.04, 0.01
"""Shares of trials that were refused when they were drawn, and that diverged in training."""

SPEC: dict[str, Any] = {
    "name": "thousands of trials",
    "task": {"kind": "digits"},
    "space": {"hidden_size": {"low": 8, "high": 64, "step": 8}, "batch_size": 256},
    "seed": 0,
}


@dataclass(frozen=True)
class Cut:
    """How many events and exchanges a study had when it had so many trials."""

    trials: int
    events: int
    exchanges: int


def submitted(database: Database, sources: DataSources, count: int) -> StudyRecord:
    """A study that may have so many trials, begun and prepared."""
    spec = StudySpec.model_validate({**SPEC, "budget": {"trials": count, "epochs": EPOCHS}})
    study = submission.submit(database, spec, sources=sources)
    point = reference_point(spec, largest_count=SearchSpace(spec).parameter_range.high)
    with database.write() as session:
        Studies(session).set_reference_point(study.id, point)
        Studies(session).set_prepared(study.id, {"validation": _VALIDATION_SAMPLES})
        studies.enter(session, study.id, StudyState.RUNNING, at=study.created_at)
        return Studies(session).get(study.id)


def finish(database: Database, study_id: str) -> None:
    """End a study whose trials have all ended."""
    with database.write() as session:
        studies.enter(session, study_id, StudyState.FINISHED, at=datetime.now(UTC))


class Filler:
    """Writes trials into one study as its coordinator and its workers would have."""

    def __init__(self, database: Database, study: StudyRecord) -> None:
        self._database = database
        self._study = study
        self._spec = StudySpec.model_validate(study.spec)
        self._space = SearchSpace(self._spec)
        self._generator = np.random.default_rng(self._spec.seed)
        self._clock = study.created_at
        self._measured: dict[str, MeasurementRecord] = {}
        self._front: dict[int, NDArray[np.float64]] = {}
        self._device = device_model("cpu")
        self._epochs = 0
        self.trials = 0

    def fill(self, count: int) -> Cut:
        """Write trials until there are so many."""
        while self.trials < count:
            with self._database.write() as session:
                for number in range(self.trials, min(count, self.trials + _AT_ONCE)):
                    self.add(session, number)
        with self._database.read() as session:
            events = Studies(session).get(self._study.id).last_event
            exchanges = len(Exchanges(session).list(self._study.id))
        return Cut(trials=count, events=events, exchanges=exchanges)

    def add(self, session: Session, number: int) -> None:
        """One trial from its suggestion to its end."""
        drawn = self._space.draw(RandomSource(self._generator))
        fate = float(self._generator.random())
        added = self._added(session, number, drawn)
        self.trials = number + 1
        if fate < _REFUSED:
            self._end(session, number, state=TrialState.INFEASIBLE, over=0.5)
        else:
            self._measure(session, added)
            self._train(session, added, drawn, diverges=fate < _REFUSED + _DIVERGED)
        Trials(session).mark_told(self._study.id, number, self._tick(0.01))
        Exchanges(session).append(self._study.id, "tell", number)
        ended = Trials(session).get(self._study.id, number)
        if ended.state == TrialState.COMPLETE:
            self._note_front(session, ended)

    def _tick(self, seconds: float) -> datetime:
        self._clock += timedelta(seconds=seconds)
        return self._clock

    def _added(self, session: Session, number: int, drawn: DrawnTrial) -> TrialRecord:
        model = drawn.spec.model
        record = trial(
            self._study.id,
            number,
            architecture=drawn.candidate.architecture,
            parametrization=drawn.candidate.parametrization,
            hyperparameters=dict(drawn.hyperparameters),
            drawn=dict(drawn.drawn),
            spec=drawn.spec.model_dump(mode="json"),
            parameters=model.parameter_count(),
            dense_parameters=model.dense_twin().parameter_count(),
            shape_key=model.shape_key(),
            created_at=self._tick(0.5),
        )
        Trials(session).add(record)
        Exchanges(session).append(self._study.id, "ask", number)
        announce_trial(session, record, at=self._clock)
        return record

    def _measure(self, session: Session, of: TrialRecord) -> None:
        known = self._measured.get(of.shape_key)
        if known is None:
            attempt = self._attempt(of, AttemptKind.MEASURE, {"kind": "measure"})
            self._run(session, attempt, seconds=1.0)
            known = self._measured[of.shape_key] = self._measurement(of, attempt)
            Measurements(session).add(self._study.id, known)
            report = MeasurementReport.model_validate(
                {name: vars(known)[name] for name in MeasurementReport.model_fields}
            )
            payload = report.model_dump(exclude={"record"})
            Events(session).append(self._study.id, "measurement", payload, self._clock)
        Trials(session).set_throughput(self._study.id, of.number, known)

    def _measurement(self, of: TrialRecord, attempt: AttemptRecord) -> MeasurementRecord:
        speed = 4e9 / (of.parameters + 2e4) * float(self._generator.uniform(0.6, 1.4))
        ratio = of.dense_parameters / of.parameters * float(self._generator.uniform(0.3, 1.1))
        return MeasurementRecord(
            id=f"{attempt.id}-{of.number}",
            study_id=self._study.id,
            trial=of.number,
            shape_key=of.shape_key,
            device=self._device,
            samples_per_second=speed,
            ratio=ratio,
            record={"device": self._device, "threads": 1, "rounds": [*[speed] * 30]},
            seconds=1.0,
            created_at=self._clock,
        )

    def _attempt(self, of: TrialRecord, kind: AttemptKind, job: dict[str, Json]) -> AttemptRecord:
        began = self._tick(0.1)
        return AttemptRecord(
            id=hashlib.sha256(f"{self._study.id} {of.number} {kind}".encode()).hexdigest()[:16],
            study_id=self._study.id,
            kind=kind,
            trial=of.number,
            number=1,
            state=AttemptState.RUNNING,
            job=job,
            slot=f"cpu-{of.number % 2}",
            slot_share=1.0,
            device="cpu",
            lease_until=began + timedelta(seconds=30),
            started_at=began,
        )

    def _run(self, session: Session, attempt: AttemptRecord, *, seconds: float) -> None:
        Attempts(session).start(attempt, token_digest=attempt.id)
        ended = self._tick(seconds)
        Attempts(session).end(
            attempt.id, state=AttemptState.ENDED, at=ended, cause=AttemptCause.COMPLETE
        )

    def _train(
        self, session: Session, of: TrialRecord, drawn: DrawnTrial, *, diverges: bool
    ) -> None:
        Trials(session).start(self._study.id, of.number, self._tick(0.1))
        announce_trial(session, Trials(session).get(self._study.id, of.number), at=self._clock)
        job = TrainJob(
            task=self._spec.trained_task,
            trial=drawn.spec,
            number=of.number,
            epochs=EPOCHS,
            continues=None,
        )
        attempt = self._attempt(of, AttemptKind.TRAIN, job.model_dump(mode="json"))
        curve = self._curve(of, drawn)[: 3 if diverges else EPOCHS]
        for epoch, validation in enumerate(curve, start=1):
            self._epoch(session, of.number, epoch, validation)
        self._run(session, attempt, seconds=1.0)
        if diverges:
            self._end(session, of.number, state=TrialState.INFEASIBLE, over=1.0)
            return
        for role, size in (("checkpoint", 40_000), ("report", 8_000)):
            digest = hashlib.sha256(f"{self._study.id} {of.number} {role}".encode()).hexdigest()
            artifact = ArtifactRecord(sha256=digest, size=size, created_at=self._clock)
            ArtifactRows(session).link(self._study.id, of.number, role, artifact)
        self._end(session, of.number, state=TrialState.COMPLETE, quality=max(curve))

    def _curve(self, of: TrialRecord, drawn: DrawnTrial) -> list[float]:
        """Accuracies that grow with the epochs and with the size, in shares of the samples."""
        rate = math.log10(drawn.spec.training.learning_rate)
        lost = 0.9 * (of.parameters / 100) ** -0.45 + 0.02 * (rate + 2.5) ** 2
        if of.parametrization != "dense":
            lost *= 0.8
        lost *= float(self._generator.lognormal(0, 0.25))
        errors = [lost + 0.7 * math.exp(-0.6 * epoch) for epoch in range(1, EPOCHS + 1)]
        samples = _VALIDATION_SAMPLES
        return [round(samples * min(0.995, max(0.1, 1 - e))) / samples for e in errors]

    def _epoch(self, session: Session, number: int, epoch: int, validation: float) -> None:
        report = EpochReport(
            epoch=epoch,
            train_loss=1.1 * (1 - validation) + 0.001,
            validation=validation,
            gradient_first=0.01,
            gradient_last=0.02,
            seconds=0.1,
        )
        fields = report.model_dump(exclude={"stood_still_seconds", "held_seconds"})
        Metrics(session).put(self._study.id, number, MetricRecord(**fields, attempt=1))
        Trials(session).set_epochs(self._study.id, number, epoch)
        Events(session).append(
            self._study.id, "epoch", {"trial": number, **fields}, self._tick(0.1)
        )
        self._epochs += 1

    def _end(
        self,
        session: Session,
        number: int,
        *,
        state: TrialState,
        quality: float | None = None,
        over: float | None = None,
    ) -> None:
        end_trial(
            session,
            self._study.id,
            number,
            state=state,
            outcome=TrialOutcome(cause=TrialCause.INFEASIBLE, detail="over", violation=over)
            if quality is None
            else TrialOutcome(
                quality=quality,
                test_quality=quality - 0.01,
                test_metrics={"accuracy": quality - 0.01},
                best_epoch=EPOCHS,
            ),
            epochs_trained=0 if quality is None else EPOCHS,
        )

    def _note_front(self, session: Session, of: TrialRecord) -> None:
        """Write the event of a changed front, as the coordinator does."""
        assert of.quality is not None
        assert of.throughput is not None
        point = np.array([-of.quality, of.parameters, -of.throughput])
        if any(np.all(p <= point) and np.any(p < point) for p in self._front.values()):
            return
        kept = {n: p for n, p in self._front.items() if not np.all(point <= p)}
        self._front = {**kept, of.number: point}
        payload: dict[str, Json] = {
            "trials": [*self._front],
            "hypervolume": 1.0 + math.log10(1 + of.number),
            "trial": of.number,
            "epochs_trained": self._epochs,
            "wall_seconds": (self._clock - self._study.created_at).total_seconds(),
        }
        Events(session).append(self._study.id, FRONT, payload, self._clock)


def mirrored(database: Database, optuna_url: str, study_id: str) -> None:
    """Write a study's copy into Optuna's tables, as a coordinator that finds none does."""
    with database.read() as session:
        study = Studies(session).get(study_id)
    spec = StudySpec.model_validate(study.spec)
    storage = open_storage(optuna_url)
    dimensions = SearchSpace(spec).dimensions
    OptunaCopy(database, study_id, spec, dimensions, storage=lambda: storage).write()
    storage.remove_session()
    storage.engine.dispose()
