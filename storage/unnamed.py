"""Bytes leave the store when no row names them any more."""

from collections.abc import Sequence

from storage.artifact_rows import ArtifactRows
from storage.artifacts import ArtifactStore
from storage.engine import Database


def remove_unnamed(database: Database, store: ArtifactStore, digests: Sequence[str]) -> int:
    """Remove those of the bytes that no row names, see Note [Named bytes stay]; how many it were.

    Raises:
        DatabaseUnavailable: if the database does not answer; they are left for a sweep.
    """
    with database.write() as session:
        rows = ArtifactRows(session)
        rows.lock_names()
        return store.remove_all(rows.unnamed(digests))
