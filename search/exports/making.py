"""A trial's files: which are there, and how the others are made and stored.

Files are made when they are wanted. One that failed is not tried again: the trial keeps the reason,
which a client that asks for the file reads, see `search.exports.missing`. A program that is missing
here is no such reason: it may be here the next time.
"""

import io
import logging
from datetime import UTC, datetime

from pydantic import TypeAdapter
from sqlalchemy.orm import Session

from models.checkpoint import load
from models.errors import ExportError, ToolMissing
from search.documents.export_kinds import CHECKPOINT, ONNX, SAMPLES
from search.exports.c import c_files
from search.exports.export import ExportContext
from search.exports.missing import refusal_of_a_network
from search.exports.outcomes import ExportOutcome, refusal
from search.exports.registry import maker_of
from search.graphs.network_trial import NetworkTrial
from search.tasks import AnyTask, RawSamples
from search.training.trial_spec import trial_spec_of
from storage.blobs.artifacts import ArtifactStore, restore_if_missing, store_stream
from storage.engine import Database
from storage.errors import ArtifactNotFound, Conflict
from storage.records import ArtifactRecord
from storage.repositories.artifact_rows import ArtifactRows
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials

_log = logging.getLogger(__name__)

_TASK: TypeAdapter[AnyTask] = TypeAdapter(AnyTask)


def exported(session: Session, study_id: str, number: int, role: str) -> ArtifactRecord | None:
    """A trial's file of a role of `MADE_ROLES`; none while it was not made.

    Raises:
        NotFound: there is no such trial.
        ArtifactNotFound: none can be made, for the trial has no checkpoint, or is one of a network
            of others.
        Conflict: none can be made yet, for the trial has not ended.
        ExportError: none can be made, which was found out when it was tried.
    """
    trial = Trials(session).get(study_id, number)
    artifacts = ArtifactRows(session).of_trial(study_id, number)
    if role in artifacts:
        return artifacts[role]
    if isinstance(trial_spec_of(trial.spec), NetworkTrial):
        sentence = (
            f"trial {number} of study {study_id!r} has no {role} file: "
            f"{refusal_of_a_network(trial, role)}"
        )
        if role == ONNX and not trial.state.has_ended:
            raise Conflict(sentence)
        raise ArtifactNotFound(sentence)
    if CHECKPOINT not in artifacts:
        raise ArtifactNotFound(
            f"trial {number} of study {study_id!r} has no checkpoint to make its {role} file of; "
            f"it is {trial.state.value}"
        )
    if not trial.state.has_ended:
        raise Conflict(
            f"trial {number} of study {study_id!r} is {trial.state.value}; its {role} file is made "
            "when it has ended"
        )
    reason = refusal(trial, role, artifacts[CHECKPOINT].sha256)
    if reason is not None:
        raise ExportError(reason)
    return None


def export_trial(
    database: Database, store: ArtifactStore, study_id: str, number: int, role: str
) -> None:
    """Make a trial's file, unless it has one: the bytes first, whole, then the row.

    Making it twice at a time is harmless: both are whole and verified, and the later one stays.

    Raises:
        ExportError: the file would not compute what the model computes, or cannot be written; the
            trial keeps the reason.
        ToolMissing: a program is not here that it is tried with.
        ConversionError: no plain torch.nn layer computes what the model does.
        CheckpointError, ArtifactDamaged: the checkpoint is damaged.
        NotFound, ArtifactNotFound, Conflict: see `exported`.
    """
    with database.read() as session:
        if exported(session, study_id, number, role) is not None:
            return
        artifacts = ArtifactRows(session).of_trial(study_id, number)
        study, trial = Studies(session).get(study_id), Trials(session).get(study_id, number)
    artifact, samples = artifacts[CHECKPOINT], artifacts.get(SAMPLES)
    context = ExportContext(
        model=load(_stored(store, artifact)),
        sha256=artifact.sha256,
        study=study,
        trial=trial,
        task=_TASK.validate_python(study.spec["task"]),
        samples=None if samples is None else RawSamples.from_bytes(_stored(store, samples)),
    )
    try:
        made = maker_of(role).make(context)
    except ToolMissing:
        raise
    except ExportError as error:
        outcome = ExportOutcome.of(artifact.sha256, reason=str(error))
        with database.write() as session:
            Trials(session).set_exports(study_id, number, {role: outcome.document()})
        raise
    stored = store_stream(store, io.BytesIO(made.content), datetime.now(UTC))
    outcome = ExportOutcome.of(
        artifact.sha256, verification=made.verification, on_device=made.on_device
    )
    with database.write() as session:
        ArtifactRows(session).link(study_id, number, role, stored)
        Trials(session).set_exports(study_id, number, {role: outcome.document()})
        restore_if_missing(store, stored.sha256, io.BytesIO(made.content))
    fields = {"study_id": study_id, "trial": number, "role": role, "bytes": stored.size}
    _log.info("a file was made of a checkpoint", extra=fields)


def c_files_named(
    database: Database, store: ArtifactStore, study_id: str, number: int, name: str
) -> bytes:
    """The C files of a trial that has its own, with another name, as a ZIP file.

    Raises:
        ExportError: it is no name in C.
        CheckpointError, ArtifactDamaged: the checkpoint is damaged.
    """
    with database.read() as session:
        checkpoint = ArtifactRows(session).of_trial(study_id, number)[CHECKPOINT]
    return c_files(load(_stored(store, checkpoint)), name)


def _stored(store: ArtifactStore, artifact: ArtifactRecord) -> bytes:
    with store.open_reader(artifact.sha256) as reader:
        return reader.read()
