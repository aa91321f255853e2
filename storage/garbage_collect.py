"""Removal of stored bytes that no row names any more."""

from collections.abc import Sequence

from storage.blobs import ArtifactStore
from storage.engine import Database
from storage.repositories import ArtifactRows


def garbage_collect(database: Database, store: ArtifactStore, digests: Sequence[str]) -> int:
    """Remove those of the bytes that no row names, see Note [Named bytes stay].

    Returns the number removed.

    Raises:
        DatabaseUnavailable: if the database does not answer; they are left for a sweep.
    """
    with database.write() as session:
        rows = ArtifactRows(session)
        rows.lock_names()
        return store.remove_all(rows.unnamed(digests))
