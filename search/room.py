"""Studies wait while the store takes nothing, and go on by themselves when it does."""

import logging
from threading import Event, Thread
from types import TracebackType
from typing import Self, final

from sqlalchemy.exc import SQLAlchemyError

from search.steering import hold, resume
from search.studies import in_progress
from storage.artifacts import ArtifactStore
from storage.engine import Database
from storage.errors import StorageError, StoreFull, StoreUnavailable
from storage.records import StudyState
from storage.studies import Studies

_log = logging.getLogger(__name__)

DISK_FULL = "disk full: "
"""How the reason of a study begins that waits for room; what is full, and how full, follows."""

STORE_AWAY = "store away: "
"""The same of a store that does not answer."""

_PAUSE_SECONDS = 1.0


@final
class RoomWatch:
    """A thread of the coordinator that pauses its studies while the store takes nothing.

    The store refuses before the disk is really full, so that the database beside it can still
    write. What trains is put aside as in any pause, and goes on from what it stored last. A study
    that a user paused is left alone.
    """

    def __init__(self, database: Database, store: ArtifactStore, *, owner: str) -> None:
        """`owner` is the coordinator's name: the studies of others have stores of their own."""
        self._database = database
        self._store = store
        self._owner = owner
        self._closing = Event()
        self._thread = Thread(target=self._watch, name="room", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._closing.set()
        self._thread.join()

    def look(self) -> None:
        """Hold or resume, once."""
        try:
            self._store.check_room()
        except StoreFull as full:
            self._hold(f"{DISK_FULL}{full}")
        except StoreUnavailable as away:
            self._hold(f"{STORE_AWAY}{away}")
        else:
            self._resume()

    def _hold(self, reason: str) -> None:
        with self._database.read() as session:
            theirs = Studies(session).claims(other_than=self._owner)
            open_studies = in_progress(session)
        for study in open_studies:
            if study.id not in theirs and study.state != StudyState.PAUSED:
                _log.error("a study waits", extra={"study_id": study.id, "reason": reason})
                with self._database.write() as session:
                    hold(session, study.id, reason=reason)

    def _resume(self) -> None:
        with self._database.read() as session:
            theirs = Studies(session).claims(other_than=self._owner)
            paused = Studies(session).in_states(StudyState.PAUSED)
        for study in paused:
            waits = (study.state_reason or "").startswith((DISK_FULL, STORE_AWAY))
            if waits and study.id not in theirs:
                _log.info("there is room, a study goes on", extra={"study_id": study.id})
                resume(self._database, study.id)

    def _watch(self) -> None:
        while not self._closing.wait(_PAUSE_SECONDS):
            try:
                self.look()
            except (StorageError, SQLAlchemyError, OSError) as error:
                # The next look finds the same again.
                _log.warning("no look at the store", extra={"reason": str(error).split("\n")[0]})
