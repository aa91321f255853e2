"""ONNX files of trials: made of their checkpoints, verified, and only then stored beside them."""

import io
import logging
from datetime import UTC, datetime

from sqlalchemy.orm import Session

from storage.artifact_rows import ArtifactRows
from storage.artifacts import ArtifactStore, restore_if_missing, store_stream
from storage.engine import Database
from storage.errors import ArtifactNotFound, Conflict
from storage.records import ArtifactRecord
from storage.trials import Trials

_log = logging.getLogger(__name__)

CHECKPOINT, ONNX = "checkpoint", "onnx"
"""Roles of a trial's artifacts."""


def exported(session: Session, study_id: str, number: int) -> ArtifactRecord | None:
    """A trial's ONNX file; none while it was not made.

    Raises:
        NotFound: there is no such trial.
        ArtifactNotFound: none can be made, for the trial has no checkpoint.
        Conflict: none can be made yet, for the trial has not ended.
    """
    trial = Trials(session).get(study_id, number)
    artifacts = ArtifactRows(session).of_trial(study_id, number)
    if ONNX in artifacts:
        return artifacts[ONNX]
    if CHECKPOINT not in artifacts:
        raise ArtifactNotFound(
            f"trial {number} of study {study_id!r} has no checkpoint to make an onnx file of; "
            f"it is {trial.state.value}"
        )
    if not trial.state.has_ended:
        raise Conflict(
            f"trial {number} of study {study_id!r} is {trial.state.value}; its onnx file is made "
            "when it has ended"
        )
    return None


def export_trial(database: Database, store: ArtifactStore, study_id: str, number: int) -> None:
    """Make a trial's ONNX file, unless it has one: the bytes first, whole, then the row.

    Making it twice is harmless: a checkpoint always gives the same bytes.

    Raises:
        ExportError: the file would not compute what the model computes.
        CheckpointError, ArtifactDamaged: the checkpoint is damaged.
        NotFound, ArtifactNotFound, Conflict: see `exported`.
    """
    with database.read() as session:
        if exported(session, study_id, number) is not None:
            return
        artifact = ArtifactRows(session).of_trial(study_id, number)[CHECKPOINT]
    with store.open_reader(artifact.sha256) as reader:
        content = _exported(reader.read(), sha256=artifact.sha256)
    made = store_stream(store, io.BytesIO(content), datetime.now(UTC))
    with database.write() as session:
        ArtifactRows(session).link(study_id, number, ONNX, made)
        restore_if_missing(store, made.sha256, io.BytesIO(content))
    fields = {"study_id": study_id, "trial": number, "bytes": made.size}
    _log.info("an ONNX file was made", extra=fields)


def _exported(checkpoint: bytes, *, sha256: str) -> bytes:
    # Whoever never exports, as workers do not, never waits for these libraries.
    from models.checkpoint import load
    from models.onnx.export import export
    from models.onnx.verify import verify

    model = load(checkpoint)
    content = export(model.module, model.spec, extra={"checkpoint_sha256": sha256})
    verify(content, model.module, model.spec)
    return content
