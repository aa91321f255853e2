"""ONNX files of a study's final front, made when the study is finished."""

import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

from models.errors import CheckpointError, ExportError
from search.exports import ONNX, export_trial
from search.lane import Lane
from search.pareto import front_of, objective_infos
from search.spec import StudySpec
from storage.artifacts import ArtifactStore
from storage.engine import Database
from storage.errors import StorageError
from storage.records import StudyState, TrialState
from storage.studies import Studies
from storage.trials import Trials

_log = logging.getLogger(__name__)


class FrontExports:
    """Makes them one after the other, in a thread of the coordinator, beside other studies' work.

    What waits when the process ends is made when somebody asks for it.
    """

    def __init__(self, database: Database, store: ArtifactStore, *, lane: Path) -> None:
        """`lane` is the folder of the CPU's lane: nothing is exported while somebody measures."""
        self._database = database
        self._store = store
        self._lane = lane
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
            for number in self._front(study_id):
                if self._closing.is_set():
                    return
                self._export(study_id, number)
        except StorageError as error:  # the study may be gone by now
            _log.info("a front is not exported", extra={"study_id": study_id, "reason": str(error)})

    def _export(self, study_id: str, number: int) -> None:
        try:
            with Lane(self._lane) as lane, lane.shared():
                export_trial(self._database, self._store, study_id, number)
        except (ExportError, CheckpointError) as error:
            fields = {"study_id": study_id, "trial": number, "reason": str(error)}
            _log.error("a point of the front has no ONNX file", extra=fields)

    def _front(self, study_id: str) -> list[int]:
        with self._database.read() as session:
            study = Studies(session).get(study_id)
            complete = Trials(session).list(study_id, TrialState.COMPLETE)
        if study.state != StudyState.FINISHED:
            return []
        spec = StudySpec.model_validate(study.spec)
        front = front_of(complete, objective_infos(spec.task, spec.objectives))
        return [trial.number for trial in front if ONNX not in trial.artifacts]
