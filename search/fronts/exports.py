"""Files made of trials' checkpoints, and stored beside them.

They are made when they are wanted, and those of a study's final front when the study is finished.
An ONNX file is stored only after it was verified. A dense one is the state dict of plain torch.nn
layers: structured matrices are folded, so that it loads without this project.
"""

import io
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from threading import Event

from sqlalchemy.orm import Session

from models.errors import CheckpointError, ConversionError, ExportError
from search.documents.export_kinds import CHECKPOINT, DENSE, ONNX
from search.fronts.pareto import front_of, objective_infos
from search.measuring.measurement_lock import MeasurementLock
from search.studies import StudySpec
from search.training.taken_away import onnx_metadata
from storage.blobs.artifacts import ArtifactStore, restore_if_missing, store_stream
from storage.engine import Database
from storage.errors import ArtifactNotFound, Conflict, StorageError
from storage.records import ArtifactRecord, StudyState, TrialState
from storage.repositories.artifact_rows import ArtifactRows
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials

_log = logging.getLogger(__name__)


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
    from models.exports.onnx.export import export
    from models.exports.onnx.verify import verify

    model = load(checkpoint)
    content = export(model.module, model.spec, extra=onnx_metadata(sha256))
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


class FrontExports:
    """Makes the files of final fronts, one after the other, in a thread of the coordinator.

    Each point gets an ONNX file, and in a study that compresses a model the dense one as well, in
    which it goes back to where the model came from. What waits when the process ends is made when
    somebody asks for it.
    """

    def __init__(self, database: Database, store: ArtifactStore, *, lock: Path) -> None:
        """`lock` is the folder of the CPU's measurement lock; no export runs while it is held."""
        self._database = database
        self._store = store
        self._lock = lock
        self._closing = Event()
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="front-onnx")

    def close(self) -> None:
        """Finish the file at hand, and forget the others."""
        self._closing.set()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def ended(self, study_id: str) -> None:
        """Take note that a study has ended; returns at once."""
        self._pool.submit(self._export_front, study_id)

    def _export_front(self, study_id: str) -> None:
        try:
            for number, role in self._missing(study_id):
                if self._closing.is_set():
                    return
                self._export(study_id, number, role)
        except StorageError as error:  # the study may be gone by now
            _log.info("a front is not exported", extra={"study_id": study_id, "reason": str(error)})

    def _export(self, study_id: str, number: int, role: str) -> None:
        fields: dict[str, object] = {"study_id": study_id, "trial": number, "role": role}
        try:
            with MeasurementLock(self._lock) as lock, lock.shared():
                export_trial(self._database, self._store, study_id, number, role)
        except ConversionError as error:
            # A property of the architecture, of which whoever asks for the file is told.
            _log.info("no file is made", extra={**fields, "reason": str(error)})
        except (ExportError, CheckpointError) as error:
            _log.error("a point of the front lacks a file", extra={**fields, "reason": str(error)})

    def _missing(self, study_id: str) -> list[tuple[int, str]]:
        with self._database.read() as session:
            study = Studies(session).get(study_id)
            complete = Trials(session).list(study_id, TrialState.COMPLETE)
        if study.state != StudyState.FINISHED:
            return []
        spec = StudySpec.model_validate(study.spec)
        front = front_of(complete, objective_infos(spec.task, spec.objectives))
        roles = (ONNX,) if spec.compress is None else (ONNX, DENSE)
        return [
            (trial.number, role) for trial in front for role in roles if role not in trial.artifacts
        ]
