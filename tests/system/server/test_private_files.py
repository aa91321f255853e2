"""The files of a server are its own user's alone, whoever makes them and whatever the umask is."""

import json
import logging
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from service.client import Client
from service.data_dir.private_files import tighten
from service.data_dir.whole_files import usual_mode, write_whole
from service.settings import Settings
from tests.service.listening import listening
from tests.service.running import Server, wait_until
from tests.service.site import SMALL_SPEC, Site
from tests.service.uploading import CSV

MADE = {"reflectory.db", "optuna.db", "artifacts", "cache", "lanes", "logs", "uploads"}
"""What a server has in its data directory once a study was run."""


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.fixture
def loose() -> Iterator[None]:
    """Under a umask that takes nothing away; real processes inherit it."""
    with umask(0):
        yield


def reflectory(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "service.cli", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done


def open_to_others(folder: Path) -> dict[str, str]:
    """The folder and all below it that others may do something with: path -> mode."""
    found: dict[str, str] = {}
    for path in (folder, *folder.rglob("*")):
        mode = path.lstat().st_mode
        if not stat.S_ISLNK(mode) and mode & 0o077:
            found[str(path)] = oct(stat.S_IMODE(mode))
    return found


@pytest.mark.usefixtures("loose")
def test_keys_come_first_and_then_a_server_and_all_of_it_is_private(tmp_path: Path) -> None:
    data = tmp_path / "new" / "data"
    key = reflectory("keys", "create", "me", "--scope", "admin", "--data-dir", str(data)).stdout
    assert open_to_others(data) == {}
    assert (data / "reflectory.db").stat().st_mode & 0o777 == 0o600
    server = Server(data, workers=1)
    try:
        server.start()
        server.http.headers["Authorization"] = f"Bearer {key.strip()}"
        spec = {**SMALL_SPEC, "budget": {"trials": 1, "epochs": 1}}
        study = server.http.post("/v1/studies", json=spec).json()["id"]
        server.http.post("/v1/datasets", files={"file": ("a.csv", CSV)}).raise_for_status()
        path = f"/v1/studies/{study}"
        wait_until(
            lambda: server.http.get(path).json()["state"] == "finished", what="a study's end"
        )
        # While it runs, SQLite's own files are there as well.
        assert {file.name for file in data.iterdir()} >= {*MADE, "reflectory.db-wal", "server.json"}
        assert open_to_others(data) == {}
        reflectory("backup", str(tmp_path / "backup"), "--data-dir", str(data))
        assert open_to_others(tmp_path / "backup") == {}
        assert (tmp_path / "backup" / "reflectory.db").exists()
    finally:
        server.close()
    assert "open to other users" not in server.log.read_text()


def test_a_start_takes_from_others_what_an_earlier_one_left_open_with_one_line(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    site = Site(data)
    for folder in ("artifacts/ab", "cache/old", "lanes/cpu", "logs", "uploads"):
        (data / folder).mkdir(parents=True, exist_ok=True)
        (data / folder / "file").write_text("x")
    site.close()
    for path in (data, *data.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o666)
    server = Server(data, workers=0)
    try:
        server.start()
        assert open_to_others(data) == {}
    finally:
        server.close()
    assert server.log.read_text().count("open to other users") == 1


Settled = Callable[..., Settings]


@pytest.fixture
def settled(tmp_path: Path) -> Settled:
    """Settings over a data directory whose files are open to all."""

    def settle(**given: object) -> Settings:
        settings = Settings(data_dir=tmp_path / "data", **given)  # pyright: ignore[reportArgumentType]
        for file in ("reflectory.db", "artifacts/ab/cd", "logs/a.log", "notes.txt", "own/a.csv"):
            (settings.data_dir / file).parent.mkdir(parents=True, exist_ok=True)
            (settings.data_dir / file).write_text("x")
        for path in (settings.data_dir, *settings.data_dir.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        return settings

    return settle


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_not_the_servers_stays_as_it_is(settled: Settled, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o755)
    (outside / "file").write_text("x")
    (outside / "file").chmod(0o644)
    settings = settled(data_sets=tmp_path / "data" / "cache")
    data = settings.data_dir
    (data / "cache").mkdir(mode=0o755)
    (data / "cache").chmod(0o755)
    for link in ("artifacts/link", "logs/link", "worker.id", "uploads"):
        (data / link).symlink_to(outside if link == "uploads" else outside / "file")
    assert tighten(settings) == 7
    for ours in ("", "reflectory.db", "artifacts", "artifacts/ab", "artifacts/ab/cd", "logs"):
        assert mode(data / ours) & 0o077 == 0, ours
    assert mode(data / "reflectory.db") == 0o600
    # A user's own files in that folder, a folder of data sets, and whatever links lead to.
    assert mode(data / "notes.txt") == mode(data / "own" / "a.csv") == 0o644
    assert mode(data / "cache") == mode(data / "own") == mode(outside) == 0o755
    assert mode(outside / "file") == 0o644
    assert tighten(settings) == 0


def test_artifacts_that_are_kept_elsewhere_are_tightened_there(
    settled: Settled, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    (store / "ab").mkdir(parents=True)
    (store / "ab" / "cd").write_text("x")
    for path in (store, store / "ab", store / "ab" / "cd"):
        path.chmod(0o755)
    tighten(settled(artifacts_dir=store))
    assert open_to_others(store) == {}
    assert mode(tmp_path) & 0o700 == 0o700


def test_a_folder_that_nobody_else_enters_is_not_walked(
    settled: Settled, caplog: pytest.LogCaptureFixture
) -> None:
    settings = settled()
    tighten(settings)
    caplog.clear()
    caplog.set_level(logging.INFO)
    within = settings.data_dir / "artifacts" / "ab" / "cd"
    within.chmod(0o644)
    assert tighten(settings) == 0
    assert mode(within) == 0o644
    assert caplog.records == []


def test_a_data_directory_that_is_not_there_is_none_to_tighten(tmp_path: Path) -> None:
    assert tighten(Settings(data_dir=tmp_path / "none")) == 0
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(("mask", "expected"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_what_users_ask_for_has_the_mode_that_they_give_files(
    site: Site, tmp_path: Path, mask: int, expected: int
) -> None:
    study = site.study()
    site.run(study)
    site.trial(study, 0, quality=0.5, throughput=10.0)
    with (
        umask(mask),
        listening(site) as (host, port),
        Client(f"http://{host}:{port}") as client,
    ):
        out = client.download(study.id, 0, tmp_path / "model.safetensors").path
        write_whole(tmp_path / "front.csv", "a", private=False)
        write_whole(tmp_path / "secret", "a")
        assert usual_mode() == expected
        assert os.umask(mask) == mask
    assert mode(out) == mode(tmp_path / "front.csv") == expected
    assert mode(tmp_path / "secret") == 0o600


@pytest.mark.usefixtures("loose")
def test_commands_of_users_leave_their_umask_alone(tmp_path: Path) -> None:
    program = (
        "import os\n"
        "from typer.testing import CliRunner\n"
        "from service.cli import application\n"
        "words = ['list', '--server', 'http://127.0.0.1:1']\n"
        "CliRunner().invoke(application, words)\n"
        "theirs = os.umask(0)\n"
        f"words = ['keys', 'list', '--json', '--data-dir', {str(tmp_path)!r}]\n"
        "print([theirs, CliRunner().invoke(application, words).exit_code, os.umask(0)])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True
    )
    assert json.loads(done.stdout) == [0, 0, 0o077]
