"""All files of a trial, made one after the other when its folder is asked for."""

import time

from models.errors import CheckpointError, ConversionError, ExportError
from search.exports import MAKERS, exported
from search.training.trial_spec import TrialSpec
from service.api.resources import Resources
from storage.errors import ArtifactNotFound, Conflict, StoredBytesDamaged
from storage.repositories.trials import Trials

_NO_FILE = (ExportError, ConversionError, CheckpointError, ArtifactNotFound, StoredBytesDamaged)


def make_all(held: Resources, study_id: str, number: int) -> str | None:
    """Have every file made that can be, within the time that an answer may wait.

    Returns:
        What is still being made; None where all is done.

    Raises:
        NotFound: there is no such trial.
        Conflict: it has not ended.
    """
    with held.database.read() as session:
        trial = Trials(session).get(study_id, number)
    if not trial.state.has_ended:
        raise Conflict(
            f"trial {number} of study {study_id!r} is {trial.state.value}; its folder is there "
            "when it has ended"
        )
    model = TrialSpec.model_validate(trial.spec).model
    until = time.monotonic() + held.settings.export_wait_seconds
    for role, export in MAKERS.items():
        if export.fault(model) is not None:
            continue
        try:
            with held.database.read() as session:
                if exported(session, study_id, number, role) is not None:
                    continue
            patience = max(0.0, until - time.monotonic())
            if not held.exports.make(study_id, number, role, patience=patience):
                return export.words
        except _NO_FILE:
            # The folder tells why it lacks the file.
            continue
    return None
