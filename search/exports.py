"""Files made of trials' checkpoints when they are wanted, and stored beside them.

An ONNX file is stored only after it was verified. A dense one is the state dict of plain torch.nn
layers: structured matrices are folded, so that it loads without this project.
"""

import io
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from sqlalchemy.orm import Session

from models.compression import torch_fault
from search.trial import TrialSpec
from storage.artifact_rows import ArtifactRows
from storage.artifacts import ArtifactStore, restore_if_missing, store_stream
from storage.engine import Database
from storage.errors import ArtifactNotFound, Conflict
from storage.records import ArtifactRecord, TrialRecord
from storage.trials import Trials

_log = logging.getLogger(__name__)

CHECKPOINT, ONNX, DENSE = "checkpoint", "onnx", "dense"
"""Roles of a trial's artifacts."""


def exported(
    session: Session, study_id: str, number: int, role: str = ONNX
) -> ArtifactRecord | None:
    """A trial's ONNX or dense file; none while it was not made.

    Raises:
        NotFound: there is no such trial.
        ArtifactNotFound: none can be made, for the trial has no checkpoint.
        Conflict: none can be made yet, for the trial has not ended.
    """
    trial = Trials(session).get(study_id, number)
    artifacts = ArtifactRows(session).of_trial(study_id, number)
    if role in artifacts:
        return artifacts[role]
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
    return None


def has_dense_file(trial: TrialRecord) -> bool:
    """Whether a trial has a dense file, or one can be made of it."""
    if CHECKPOINT not in trial.artifacts:
        return False
    return torch_fault(TrialSpec.model_validate(trial.spec).model.architecture) is None


def export_trial(
    database: Database, store: ArtifactStore, study_id: str, number: int, role: str = ONNX
) -> None:
    """Make a trial's ONNX or dense file, unless it has one: the bytes first, whole, then the row.

    Making it twice is harmless: a checkpoint always gives the same bytes.

    Raises:
        ExportError: the ONNX file would not compute what the model computes.
        ConversionError: no plain torch.nn layer computes what the model does.
        CheckpointError, ArtifactDamaged: the checkpoint is damaged.
        NotFound, ArtifactNotFound, Conflict: see `exported`.
    """
    with database.read() as session:
        if exported(session, study_id, number, role) is not None:
            return
        artifact = ArtifactRows(session).of_trial(study_id, number)[CHECKPOINT]
    with store.open_reader(artifact.sha256) as reader:
        content = _MAKERS[role](reader.read(), artifact.sha256)
    made = store_stream(store, io.BytesIO(content), datetime.now(UTC))
    with database.write() as session:
        ArtifactRows(session).link(study_id, number, role, made)
        restore_if_missing(store, made.sha256, io.BytesIO(content))
    fields = {"study_id": study_id, "trial": number, "role": role, "bytes": made.size}
    _log.info("a file was made of a checkpoint", extra=fields)


def _onnx_file(checkpoint: bytes, sha256: str) -> bytes:
    # Whoever never exports, as workers do not, never waits for these libraries.
    from models.checkpoint import load
    from models.onnx.export import export
    from models.onnx.verify import verify

    model = load(checkpoint)
    content = export(model.module, model.spec, extra={"checkpoint_sha256": sha256})
    verify(content, model.module, model.spec)
    return content


def _dense_file(checkpoint: bytes, sha256: str) -> bytes:
    from models.checkpoint import load, plain_bytes
    from models.compression import to_torch
    from models.network import Network

    model = load(checkpoint)
    assert isinstance(model.module, Network)
    tensors = to_torch(model.module, model.spec)
    metadata = {
        # What torch's own tools call tensors of theirs.
        "format": "pt",
        "architecture": model.spec.architecture.model_dump_json(),
        "signature": model.spec.signature.model_dump_json(),
        "checkpoint_sha256": sha256,
    }
    return plain_bytes(tensors, metadata)


_MAKERS: Mapping[str, Callable[[bytes, str], bytes]] = {ONNX: _onnx_file, DENSE: _dense_file}
