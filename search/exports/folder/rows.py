"""The facts of a trial's folder, read from rows."""

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy.orm import Session

from search.exports.folder.facts import FolderFacts
from search.exports.missing import missing_files
from search.exports.outcomes import outcome
from search.exports.registry import MAKERS
from search.tasks import AnyTask
from search.training.trial_spec import TrialSpec
from storage.records import StudyRecord, TrialRecord
from storage.repositories.artifact_rows import ArtifactRows
from storage.repositories.measurements import Measurements
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials

_TASK: TypeAdapter[AnyTask] = TypeAdapter(AnyTask)


def folder_facts(session: Session, study_id: str, number: int) -> FolderFacts:
    """The facts of a trial, as of this transaction.

    Raises:
        NotFound: there is no such trial.
    """
    study, trial = Studies(session).get(study_id), Trials(session).get(study_id, number)
    task = _TASK.validate_python(study.spec["task"])
    outcomes = {role: outcome(trial, role) for role in MAKERS}
    return FolderFacts(
        study=study.name,
        trial=number,
        task=task.title,
        model=TrialSpec.model_validate(trial.spec).model,
        metric=task.metric,
        quality=trial.quality,
        test_quality=trial.test_quality,
        samples=sample_counts(study),
        parameters=trial.parameters,
        dense_parameters=trial.dense_parameters,
        speeds=speeds_of(Measurements(session), trial),
        artifacts=ArtifactRows(session).of_trial(study_id, number),
        missing=missing_files(trial),
        outcomes={role: found for role, found in outcomes.items() if found is not None},
    )


def sample_counts(study: StudyRecord) -> dict[str, int]:
    """Samples of each split that preparing a study's data counted; empty before that."""
    counts = study.prepared or {}
    return {
        split: count
        for split in ("train", "validation", "test")
        if isinstance(count := counts.get(split), int)
    }


def speeds_of(measurements: Measurements, trial: TrialRecord) -> tuple[Mapping[str, Any], ...]:
    """The record that the search went by, then the newest of each other runtime and device."""
    if trial.measurement_id is None:
        return ()
    used = measurements.get(trial.measurement_id)
    found: dict[tuple[Any, str], Mapping[str, Any]] = {}
    for one in (used, *reversed(measurements.of_study(used.study_id, used.shape_key))):
        found.setdefault((one.record.get("runtime"), one.device), one.record)
    return tuple(found.values())
