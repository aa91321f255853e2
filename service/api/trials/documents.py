"""Trials made of rows."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy.orm import Session

from search.dispatch.runs.remeasuring import Again, asked_again
from search.documents.export_kinds import CHECKPOINT, DENSE, ONNX, ONNX_STREAM
from search.documents.objectives import OBJECTIVE_KINDS, Valued
from search.documents.region import Region
from search.exports import file_sizes, missing_files
from service.api.paths import trial_path, trials_path
from service.api.rows import from_row
from service.api.trials.schemas import (
    AgainDocument,
    AttemptDocument,
    EnqueuedDocument,
    EnqueuedLinks,
    MeasureDocument,
    MeasureLinks,
    MeasurementDocument,
    PredictedDocument,
    TrialDetail,
    TrialDocument,
    TrialLinks,
    TrialValues,
)
from storage.records import AttemptRecord, CommandRecord, MeasurementRecord, TrialRecord
from storage.repositories.artifact_rows import ArtifactRows
from storage.repositories.attempts import Attempts
from storage.repositories.measurements import Measurements
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials


def trial_document(
    trial: TrialRecord, attempts: Sequence[AttemptRecord], region: Region
) -> TrialDocument:
    """A trial with its attempts, of a study with this region of interest."""
    return from_row(TrialDocument, trial, **_not_in_the_row(trial, attempts, region))


def values_of(trial: Valued) -> TrialValues:
    """All objectives of a trial."""
    found = {name: kind.value(trial) for name, kind in OBJECTIVE_KINDS.items()}
    return TrialValues.model_validate(
        {**found, "parameters": trial.parameters, "bytes": trial.bytes}
    )


def trial_detail(session: Session, study_id: str, number: int) -> TrialDetail:
    """One trial with its attempts and the records of its shape.

    Raises:
        NotFound: there is no such study or trial.
    """
    trial = Trials(session).get(study_id, number)
    region = Region.of_document(Studies(session).get(study_id).spec)
    records: Sequence[MeasurementRecord] = ()
    if trial.measurement_id is not None:
        used = Measurements(session).get(trial.measurement_id)
        records = Measurements(session).of_study(study_id, used.shape_key)
    measurements = tuple(
        from_row(MeasurementDocument, record, used=record.id == trial.measurement_id)
        for record in records
    )
    again = asked_again(session, trial)
    return from_row(
        TrialDetail,
        trial,
        **_not_in_the_row(trial, Attempts(session).of_trial(study_id, number), region),
        bytes=file_sizes(trial, ArtifactRows(session).sizes(list(trial.artifacts.values()))),
        throughput=next((record for record in measurements if record.used), None),
        measurements=measurements,
        measuring=None if again is None else from_row(AgainDocument, again),
    )


def measure_document(study_id: str, number: int, again: Again) -> MeasureDocument:
    """Another measurement, as far as it is."""
    links = MeasureLinks(trial=trial_path(study_id, number))
    return MeasureDocument(measurement=from_row(AgainDocument, again), links=links)


def enqueued_document(command: CommandRecord) -> EnqueuedDocument:
    """A trial that a user named, as far as it was made."""
    number = command.trial
    trial = None if number is None else trial_path(command.study_id, number)
    links = EnqueuedLinks(trial=trial, trials=trials_path(command.study_id))
    return EnqueuedDocument(number=number, links=links)


def _not_in_the_row(
    trial: TrialRecord, attempts: Sequence[AttemptRecord], region: Region
) -> dict[str, Any]:
    path = trial_path(trial.study_id, trial.number)
    missing = missing_files(trial)
    return {
        "outcome": trial.state,
        "values": values_of(trial),
        "outside": region.is_outside(trial),
        "predicted": {
            name: PredictedDocument(value=value, low=low, high=high)
            for name, (value, low, high) in trial.predicted.items()
        },
        "missing": missing,
        "attempts": tuple(from_row(AttemptDocument, attempt) for attempt in attempts),
        "links": TrialLinks(
            trial=path,
            metrics=f"{path}/metrics",
            checkpoint=f"{path}/checkpoint" if "checkpoint" in trial.artifacts else None,
            report=f"{path}/report" if "report" in trial.artifacts else None,
            onnx=f"{path}/onnx" if "onnx" in trial.artifacts else None,
            dense=f"{path}/dense" if DENSE not in missing else None,
            onnx_stream=f"{path}/onnx_stream" if ONNX_STREAM in trial.artifacts else None,
            card=f"{path}/card" if trial.state.has_ended else None,
            folder=f"{path}/folder"
            if trial.state.has_ended and {CHECKPOINT, ONNX} & trial.artifacts.keys()
            else None,
            log=f"{path}/log" if attempts else None,
        ),
    }
