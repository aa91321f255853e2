"""Files of a trial, made when they or its folder are asked for."""

import time
from http import HTTPStatus
from typing import Final

from fastapi import Response
from fastapi.responses import JSONResponse

from models.errors import CheckpointError, ConversionError, ExportError
from models.exports.c.text import check_name
from search.documents.export_kinds import C
from search.errors import Fault, Refused
from search.exports import C_NAME, MAKERS, OnnxVariant, c_files_named, exported, maker_of
from search.graphs.network_trial import NetworkTrial
from search.training.trial_spec import trial_spec_of
from service.api.resources import Resources
from service.api.stored_files import WantedPart, made_bytes, stored_file
from service.api.trials.schemas import ExportDocument
from storage.errors import ArtifactNotFound, Conflict, StoredBytesDamaged
from storage.records import ArtifactRecord
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials

RETRY_SECONDS: Final = "1"

_NO_FILE = (ExportError, ConversionError, CheckpointError, ArtifactNotFound, StoredBytesDamaged)


def made_file(
    held: Resources, study_id: str, number: int, wanted: WantedPart, *, role: str, suffix: str
) -> Response:
    """A file that is made of a trial's checkpoint when it is first asked for.

    Raises:
        NotFound, ArtifactNotFound, Conflict, ExportError: see `search.exports.exported`.
    """
    artifact = _made(held, study_id, number, role)
    if artifact is None:
        return being_made(maker_of(role).words)
    return stored_file(held, artifact, wanted, filename=f"{study_id}-{number}.{suffix}")


def made_c_files(
    held: Resources, study_id: str, number: int, wanted: WantedPart, name: str
) -> Response:
    """The C files of a trial; those of a name of their own once the trial's are made and checked.

    Raises:
        NotFound, ArtifactNotFound, Conflict, ExportError: see `search.exports.exported`.
        Refused: it is no name in C; names the query.
    """
    try:
        check_name(name)
    except ExportError as error:
        raise Refused([Fault("name", str(error))]) from error
    if name == C_NAME:
        return made_file(held, study_id, number, wanted, role=C, suffix="c.zip")
    if _made(held, study_id, number, C) is None:
        return being_made(maker_of(C).words)
    content = c_files_named(held.database, held.store, study_id, number, name)
    return made_bytes(content, wanted, filename=f"{study_id}-{number}.{name}.c.zip")


def _made(held: Resources, study_id: str, number: int, role: str) -> ArtifactRecord | None:
    """A file, made within the time that an answer may wait; None: it takes longer."""
    artifact = _exported(held, study_id, number, role)
    if artifact is None:
        patience = held.settings.export_wait_seconds
        if held.exports.make(study_id, number, role, patience=patience):
            artifact = _exported(held, study_id, number, role)
    return artifact


def being_made(words: str) -> Response:
    """The answer to a client that has to ask again."""
    waiting = ExportDocument(detail=f"the {words} is being made; ask again")
    return JSONResponse(
        waiting.model_dump(), HTTPStatus.ACCEPTED, headers={"Retry-After": RETRY_SECONDS}
    )


def onnx_role(held: Resources, study_id: str, number: int, variant: OnnxVariant) -> str:
    """The role of the ONNX file that is asked for.

    Raises:
        NotFound, ArtifactNotFound, Conflict, ExportError: see `search.exports.exported`.
        Refused: the model has no such file; names the query.
    """
    with held.database.read() as session:
        role = variant.role(Studies(session).get(study_id))
        exported(session, study_id, number, role)
        spec = Trials(session).get(study_id, number).spec
    found = trial_spec_of(spec)
    if isinstance(found, NetworkTrial):
        # It is there: nothing is made of it, and no variant of it is.
        return role
    fault = variant.quantization_fault(found.model)
    if fault is not None:
        raise Refused([Fault("quantization", fault)])
    return role


def _exported(held: Resources, study_id: str, number: int, role: str) -> ArtifactRecord | None:
    with held.database.read() as session:
        return exported(session, study_id, number, role)


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
    spec = trial_spec_of(trial.spec)
    if isinstance(spec, NetworkTrial):
        return None
    until = time.monotonic() + held.settings.export_wait_seconds
    for role, export in MAKERS.items():
        if export.fault(spec.model) is not None:
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
