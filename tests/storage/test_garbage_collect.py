"""Bytes that no row names are removed, a part of them at a time."""

from collections.abc import Sequence
from pathlib import Path

from storage.blobs import LocalArtifactStore
from storage.engine import Database
from storage.garbage_collect import garbage_collect
from storage.records import ArtifactRecord
from storage.repositories.artifact_rows import ArtifactRows
from tests.storage.records import START

MANY = [f"{number:064x}" for number in range(1300)]


class CountingStore(LocalArtifactStore):
    """Notes what it is to remove at once, of which it has nothing."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.removed: list[Sequence[str]] = []

    def remove_all(self, artifact_ids: Sequence[str]) -> int:
        self.removed.append(artifact_ids)
        return len(artifact_ids)


def test_no_transaction_stands_still_while_very_many_bytes_are_removed(
    database: Database, tmp_path: Path
) -> None:
    """PostgreSQL would end it, and with it the lock that keeps others from naming the bytes."""
    named, store = MANY[700], CountingStore(tmp_path)
    with database.write() as session:
        ArtifactRows(session).add(ArtifactRecord(sha256=named, size=7, created_at=START))
    assert garbage_collect(database, store, MANY) == len(MANY) - 1
    assert max(len(together) for together in store.removed) <= 500
    assert [one for together in store.removed for one in together] == [
        one for one in MANY if one != named
    ]
