"""The facts of a folder of a network of others, read from rows."""

from pydantic import TypeAdapter
from sqlalchemy.orm import Session

from search.exports.folder.rows import sample_counts, speeds_of
from search.exports.missing import missing_files
from search.exports.network_folder.compressed_facts import CompressedFacts
from search.graphs.model_outputs import ModelOutputs
from search.graphs.network_trial import NetworkTrial
from storage.repositories.artifact_rows import ArtifactRows
from storage.repositories.measurements import Measurements
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials
from storage.repositories.uploads import Datasets, UploadedModels

_TASK: TypeAdapter[ModelOutputs] = TypeAdapter(ModelOutputs)


def compressed_facts(session: Session, study_id: str, number: int) -> CompressedFacts:
    """The facts of a trial, as of this transaction.

    Raises:
        NotFound: there is no such trial.
    """
    study, trial = Studies(session).get(study_id), Trials(session).get(study_id, number)
    task = _TASK.validate_python(study.spec["task"])
    network = UploadedModels(session).of_study(study.spec)
    data = Datasets(session).of_study(study.spec)
    return CompressedFacts(
        study=study.name,
        trial=number,
        network=task.model if network is None else network.name,
        data=task.data if data is None else data.name,
        task=task,
        spec=NetworkTrial.model_validate(trial.spec),
        samples=sample_counts(study),
        speeds=speeds_of(Measurements(session), trial),
        artifacts=ArtifactRows(session).of_trial(study_id, number),
        missing=missing_files(trial),
    )
