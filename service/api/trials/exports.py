"""ONNX and dense files on demand: one at a time, in a thread of the API's process."""

from concurrent.futures import Future, ThreadPoolExecutor, wait
from copy import copy
from threading import Lock
from typing import Self

from search.exports import export_trial
from storage.blobs.artifacts import ArtifactStore
from storage.engine import Database

LONGEST_QUEUE = 64


class Exports:
    """Makes the files that requests ask for, each once however many ask.

    What waits here is lost with the process, and made when somebody asks again.
    """

    def __init__(self, database: Database, store: ArtifactStore) -> None:
        self._database = database
        self._store = store
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="exports")
        self._lock = Lock()
        self._asked: dict[tuple[str, int, str], Future[None]] = {}

    def of(self, database: Database) -> Self:
        """The same exports, of a tenant's studies: all tenants' files wait in one line."""
        narrowed = copy(self)
        narrowed._database = database
        return narrowed

    def close(self) -> None:
        """Finish the file at hand, and forget those that wait."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def make(self, study_id: str, number: int, role: str, *, patience: float) -> bool:
        """Have a trial's file of a role made; whether that is done within `patience` seconds.

        Raises:
            ExportError, and what else `search.exports.making.export_trial` raises: the file could
            not be made. The next call tries again.
        """
        key = (study_id, number, role)
        with self._lock:
            asked = self._asked.get(key) or self._enqueue(key)
        if asked is None:
            return False
        done, _ = wait([asked], patience)
        if not done or asked.cancelled():
            return False
        with self._lock:
            if self._asked.get(key) is asked:
                del self._asked[key]
        asked.result()
        return True

    def _enqueue(self, key: tuple[str, int, str]) -> Future[None] | None:
        """Null while too many wait; the client then asks again."""
        if len(self._asked) >= LONGEST_QUEUE:
            # What is done and was not asked after again makes room.
            for done in [k for k, asked in self._asked.items() if asked.done()]:
                del self._asked[done]
        if len(self._asked) >= LONGEST_QUEUE:
            return None
        self._asked[key] = self._pool.submit(export_trial, self._database, self._store, *key)
        return self._asked[key]
