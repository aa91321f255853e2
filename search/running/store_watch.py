"""Studies wait while the store takes nothing, and go on by themselves when it does."""

import logging
import math
import time
from collections.abc import Hashable, Set
from typing import final

from pydantic import TypeAdapter
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from search.background import Background
from search.running.trial_endings import let_go
from search.studies import hold, in_progress, resume
from storage.accounts.quotas import Quotas, refusal
from storage.blobs.artifacts import ArtifactStore
from storage.endings import StudyCause
from storage.engine import Database
from storage.errors import StorageError, StoreFull, StoreUnavailable
from storage.records import StudyState, TrialRecord, TrialState
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials

_log = logging.getLogger(__name__)

_NUMBER = TypeAdapter(float)
_WAITING = (StudyCause.DISK_FULL, StudyCause.STORE_AWAY, StudyCause.OVER_QUOTA)
_PAUSE_SECONDS = 1.0
_ROOM_SECONDS = 15.0
"""So long the states of trials that were let go may take to leave the store."""
_KEPT_PER_RUNNING = 2
"""So many of the best paused trials stay for each that runs, whatever room they take."""


@final
class StoreWatch(Background):
    """A thread of the coordinator that pauses its studies while the store takes nothing.

    The store refuses before the disk is really full, so that the database beside it can still
    write. First paused trials that promise the least are let go, as long as there are any. Then
    what trains is put aside as in any pause, and goes on from what it stored last. A study that a
    user paused is left alone. The studies of a tenant whose quota of stored bytes is reached wait
    likewise.
    """

    def __init__(self, database: Database, store: ArtifactStore, *, owner: str) -> None:
        """`owner` is the coordinator's name: the studies of others have stores of their own."""
        super().__init__("room")
        self._database = database
        self._store = store
        self._owner = owner
        self._changes = database.changes()
        self._seen: Hashable | None = None
        """What was committed at the last look, where nothing was in want of room; else null."""
        self._let_go_at: dict[str, float] = {}
        """When paused trials of a study were let go last, on the monotonic clock."""

    def look(self) -> None:
        """Hold or resume, once."""
        trouble, committed = self._trouble(), self._changes.look()
        if trouble is None and committed is not None and committed == self._seen:
            return
        self._seen = None
        with self._database.read() as session:
            theirs = Studies(session).claims(other_than=self._owner)
            ours = [study for study in in_progress(session) if study.id not in theirs]
            over = _over_quota(session, {study.tenant for study in ours})
        for study in ours:
            why = trouble or over.get(study.tenant)
            if why is not None and study.state != StudyState.PAUSED:
                cause, detail = why
                if cause is not StudyCause.STORE_AWAY and self._is_making_room(study.id):
                    continue
                _log.error("a study waits", extra={"study_id": study.id, "reason": detail})
                with self._database.write() as session:
                    hold(session, study.id, cause=cause, detail=detail)
            elif why is None and study.state == StudyState.PAUSED and study.state_cause in _WAITING:
                _log.info("there is room, a study goes on", extra={"study_id": study.id})
                resume(self._database, study.id)
        if trouble is None and not over:
            self._seen = committed

    def _is_making_room(self, study_id: str) -> bool:
        """Whether states of paused trials are leaving the store; if none is, let some go.

        Half of what may go, those that promised the least when they were last chosen.
        """
        now = time.monotonic()
        if now - self._let_go_at.get(study_id, -math.inf) < _ROOM_SECONDS:
            return True
        with self._database.write() as session:
            trials = Trials(session)
            running = len(trials.list(study_id, TrialState.RUNNING))
            paused = trials.list(study_id, TrialState.PAUSED)
            paused.sort(key=_promise)
            may_go = max(0, len(paused) - _KEPT_PER_RUNNING * max(1, running))
            for trial in paused[: math.ceil(may_go / 2)]:
                let_go(session, trial, f"let go at epoch {trial.epochs_trained} for room")
        if may_go:
            _log.warning("paused trials are let go for room", extra={"study_id": study_id})
            self._let_go_at[study_id] = now
        return may_go > 0

    def _trouble(self) -> tuple[StudyCause, str] | None:
        """Why the store takes nothing of anybody; null while it does."""
        try:
            self._store.check_room()
        except StoreFull as full:
            return StudyCause.DISK_FULL, str(full)
        except StoreUnavailable as away:
            return StudyCause.STORE_AWAY, str(away)
        return None

    def _work(self) -> None:
        try:
            while not self._closing.wait(_PAUSE_SECONDS):
                self._look_again()
        finally:
            self._changes.close()

    def _look_again(self) -> None:
        try:
            self.look()
        except (StorageError, SQLAlchemyError, OSError) as error:
            # The next look finds the same again.
            _log.warning("no look at the store", extra={"reason": str(error).split("\n")[0]})


def _promise(trial: TrialRecord) -> float:
    """The hypervolume per price that was expected of a trial when it was last chosen."""
    return _NUMBER.validate_python((trial.stretch or {}).get("index", 0.0))


def _over_quota(session: Session, tenants: Set[str]) -> dict[str, tuple[StudyCause, str]]:
    """Why nothing more of a tenant is stored, by tenant, of those that have no room left."""
    quotas, found = Quotas(session), dict[str, tuple[StudyCause, str]]()
    for tenant, quota in quotas.all(tenants).items():
        limit = quota.stored_bytes
        used = 0 if limit is None else quotas.used("stored_bytes", tenant)
        if limit is not None and used >= limit:
            sentence = str(refusal("stored_bytes", used=used, limit=limit))
            found[tenant] = StudyCause.OVER_QUOTA, sentence
    return found
