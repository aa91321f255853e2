"""Backups: what rows name is there, also where two are made at once."""

import io
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import pytest

import storage.backup
from storage.backup import ARTIFACTS, SQLITE_FILE, BackedUp, back_up
from storage.blobs import LocalArtifactStore
from storage.blobs.artifacts import store_stream
from storage.engine import Database
from storage.repositories.artifact_rows import ArtifactRows
from tests.storage.records import START, add_study, add_trial


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_backup_that_ends_takes_nothing_from_another_into_the_same_folder(
    database: Database, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, folder = LocalArtifactStore(tmp_path / "store"), tmp_path / "backup"
    folder.mkdir()
    with database.write() as session:
        study = add_study(session).id
        add_trial(session, study)

    def name(role: str, content: bytes) -> None:
        artifact = store_stream(store, io.BytesIO(content), START)
        with database.write() as session:
            ArtifactRows(session).link(study, 0, role, artifact)

    def another() -> BackedUp:
        name("report", b"two")
        return back_up(database_url, store, folder)

    second: list[Future[BackedUp]] = []

    class Overlapped(LocalArtifactStore):
        """When this one has its rows in place and looks what may go, another one begins."""

        def digests(self, *, older_than_seconds: float = 0.0) -> Iterator[str]:
            if (folder / SQLITE_FILE).exists() and not second:
                second.append(beside.submit(another))
                # It has all the time that it needs, if it does not wait for this one.
                wait(second, timeout=0.5)
            return super().digests(older_than_seconds=older_than_seconds)

    name("checkpoint", b"one")
    monkeypatch.setattr(storage.backup, "LocalArtifactStore", Overlapped)
    with ThreadPoolExecutor(1) as beside:
        back_up(database_url, store, folder)
    assert second[0].result().artifacts == 2
    copy = Database(f"sqlite:///{folder / SQLITE_FILE}")
    with copy.read() as session:
        named = ArtifactRows(session).digests()
    copy.dispose()
    assert set(LocalArtifactStore(folder / ARTIFACTS).digests()) == set(named)
