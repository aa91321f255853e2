"""Removal of stored bytes that no row names any more."""

from collections.abc import Sequence
from typing import Final

from storage.batches import batched
from storage.blobs import ArtifactStore
from storage.engine import Database
from storage.repositories import ArtifactRows

_AT_ONCE: Final = 500
"""Few enough to be removed long before PostgreSQL ends a transaction that stands still meanwhile:
with it goes the lock, and others name bytes that are then removed all the same."""


def garbage_collect(database: Database, store: ArtifactStore, digests: Sequence[str]) -> int:
    """Remove those of the bytes that no row names, see Note [Named bytes stay].

    Returns the number removed.

    Raises:
        DatabaseUnavailable: if the database does not answer; they are left for a sweep.
    """
    removed = 0
    for some in batched(digests, _AT_ONCE):
        with database.write() as session:
            rows = ArtifactRows(session)
            rows.lock_names()
            removed += store.remove_all(rows.unnamed(some))
    return removed
