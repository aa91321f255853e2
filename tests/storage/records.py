"""Records for tests: everything that a test does not care about is filled in."""

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

from sqlalchemy.orm import Session

from storage.records import (
    ArtifactRecord,
    AttemptKind,
    AttemptRecord,
    AttemptState,
    DatasetRecord,
    MeasurementRecord,
    MetricRecord,
    StudyRecord,
    TrialOrigin,
    TrialRecord,
    TrialState,
    UploadedModelRecord,
)
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials
from storage.repositories.uploads import Datasets, UploadedModels

START = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)

_ids = itertools.count()


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def add_study(session: Session, **given: Any) -> StudyRecord:
    fields = {"id": f"study-{next(_ids)}", "name": "a study", "spec": {"seed": 0}, "at": START}
    return Studies(session).create(**{**fields, **given})


def trial(study_id: str, number: int, **given: Any) -> TrialRecord:
    record = TrialRecord(
        study_id=study_id,
        number=number,
        state=TrialState.QUEUED,
        architecture="rnn",
        parametrization="low_rank",
        hyperparameters={"hidden_size": 16, "low_rank.d": 3},
        drawn={"hidden_size": 16, "low_rank.d": 30},
        spec={"model": {"kind": "rnn"}, "training": {"learning_rate": 1e-3}, "seed": 7},
        parameters=120,
        dense_parameters=400,
        shape_key="rnn-16-low_rank-3",
        origin=TrialOrigin.SAMPLER,
        created_at=START,
    )
    return replace(record, **given)


def add_trial(session: Session, study_id: str, number: int = 0, **given: Any) -> TrialRecord:
    record = trial(study_id, number, **given)
    Trials(session).add(record)
    return record


def attempt(study_id: str, number: int = 1, **given: Any) -> AttemptRecord:
    record = AttemptRecord(
        id=f"attempt-{next(_ids)}",
        study_id=study_id,
        kind=AttemptKind.TRAIN,
        trial=0,
        number=number,
        state=AttemptState.RUNNING,
        job={"kind": "train", "epochs": 5},
        slot="cpu-0",
        slot_share=1.0,
        device="cpu",
        lease_until=after(30),
        started_at=START,
    )
    return replace(record, **given)


def metric(epoch: int, **given: Any) -> MetricRecord:
    record = MetricRecord(
        epoch=epoch,
        train_loss=1.0 / epoch,
        validation=0.5,
        spectral_margin=None,
        gradient_first=None,
        gradient_last=None,
        recovered_batches=0,
        seconds=0.25,
        attempt=1,
    )
    return replace(record, **given)


def measurement(study_id: str, **given: Any) -> MeasurementRecord:
    record = MeasurementRecord(
        id=f"measurement-{next(_ids)}",
        study_id=study_id,
        trial=0,
        shape_key="rnn-16-low_rank-3",
        device="cpu",
        samples_per_second=1234.5,
        ratio=0.75,
        record={"batch_size": 64, "interval": [1200.0, 1260.0]},
        seconds=1.5,
        created_at=START,
    )
    return replace(record, **given)


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def dataset(**given: object) -> DatasetRecord:
    number = next(_ids)
    record = DatasetRecord(
        id=f"dataset-{number}",
        name="wörter ☃",
        suffix=".csv",
        size=2**40,
        sha256=digest(f"file {number}"),
        test_sha256=None,
        fingerprint=digest(f"fingerprint {number}"),
        options={"problem": None, "label": "target"},
        facts={"problem": "classification", "samples": {"unassigned": 3}},
        preview=[{"x": [[0.1, 1e-320]], "y": 1}, [1, 2.5], None],
        container_sha256=digest(f"container {number}"),
        created_at=START,
    )
    return replace(record, **given)


def add_dataset(
    session: Session, record: DatasetRecord | None = None, **given: object
) -> DatasetRecord:
    """A data set with its artifacts; the record given, or one made of the fields given."""
    record = record or dataset(**given)
    artifacts = [ArtifactRecord(sha256=name, size=7, created_at=START) for name in record.digests]
    return Datasets(session).add(record, artifacts)


def uploaded_model(**given: object) -> UploadedModelRecord:
    number = next(_ids)
    record = UploadedModelRecord(
        id=f"model-{number}",
        name="wörter ☃",
        source="torch",
        sha256=digest(f"checkpoint {number}"),
        size=2**40,
        file_sha256=digest(f"model file {number}"),
        file_size=2**41,
        fingerprint=digest(f"model {number}"),
        options={"nonlinearity": "tanh"},
        spec={"architecture": {"kind": "rnn", "leak": 1e-320}},
        notes=["float16 numbers became float32"],
        parameters=2**40,
        created_at=START,
    )
    return replace(record, **given)


def add_model(
    session: Session, record: UploadedModelRecord | None = None, **given: object
) -> UploadedModelRecord:
    """A model with its artifact; the record given, or one made of the fields given."""
    record = record or uploaded_model(**given)
    artifact = ArtifactRecord(sha256=record.sha256, size=record.size, created_at=START)
    return UploadedModels(session).add(record, [artifact])
