"""The files of a study's final front, made when the study is finished."""

import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

from models.errors import CheckpointError, ConversionError, ExportError
from search.exports import MAKERS, export_trial
from search.fronts.dominance import front_of
from search.fronts.pareto import objective_infos
from search.graphs.model_outputs import ModelOutputs
from search.measuring.measurement_lock import MeasurementLock
from search.studies import StudySpec
from search.training.trial_spec import TrialSpec
from storage.blobs.artifacts import ArtifactStore
from storage.engine import Database
from storage.errors import StorageError
from storage.records import StudyState, TrialState
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials

_log = logging.getLogger(__name__)


class FrontExports:
    """Makes the files of final fronts, one after the other, in a thread of the coordinator.

    Each point gets every kind of file that it can have, so that its folder is whole. What waits
    when the process ends is made when somebody asks for it.
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
            # This architecture has no such file, which is no fault.
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
        if isinstance(spec.task, ModelOutputs):
            # Its files were made and verified when they were evaluated.
            return []
        front = front_of(complete, objective_infos(spec.task, spec.objectives))
        return [
            (trial.number, role)
            for trial in front
            for role, export in MAKERS.items()
            if role not in trial.artifacts
            and export.fault(TrialSpec.model_validate(trial.spec).model) is None
        ]
