"""What rows say of a trial whose folder is wanted."""

from pydantic import TypeAdapter
from sqlalchemy.orm import Session

from search.exports.folder.folder import FolderFacts
from search.exports.missing import missing_files
from search.exports.outcomes import outcome
from search.exports.registry import MAKERS
from search.tasks import AnyTask
from search.training.trial_spec import TrialSpec
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
    measurement = trial.measurement_id and Measurements(session).get(trial.measurement_id)
    outcomes = {role: outcome(trial, role) for role in MAKERS}
    counts = study.prepared or {}
    return FolderFacts(
        study=study.name,
        trial=number,
        task=task.title,
        model=TrialSpec.model_validate(trial.spec).model,
        metric=task.metric,
        quality=trial.quality,
        test_quality=trial.test_quality,
        samples={
            split: count
            for split in ("train", "validation", "test")
            if isinstance(count := counts.get(split), int)
        },
        parameters=trial.parameters,
        dense_parameters=trial.dense_parameters,
        speed=measurement.record if measurement else None,
        artifacts=ArtifactRows(session).of_trial(study_id, number),
        missing=missing_files(trial),
        outcomes={role: found for role, found in outcomes.items() if found is not None},
    )
