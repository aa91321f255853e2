"""`reflectory keys`, on the database of a server that runs in a process of its own."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from typer.testing import CliRunner, Result

from service.cli import application
from service.settings import Settings
from storage.accounts.audit import Audit
from storage.accounts.keys import Keys
from storage.engine import Database
from storage.records import LOCAL
from tests.service.processes import wait_until
from tests.service.site import Site

WRONG = "rfl_" + "w" * 43


def run(folder: Path, *words: str) -> Result:
    sure = ["--yes"] if words[0] == "revoke" else []
    return CliRunner().invoke(application, ["keys", *words, *sure, "--data-dir", str(folder)])


def make(folder: Path, name: str, *words: str) -> dict[str, str]:
    return json.loads(run(folder, "create", name, "--json", *words).stdout)


def test_the_first_key_needs_no_server_and_no_database(tmp_path: Path) -> None:
    made = run(tmp_path / "new", "create", "laptop", "--scope", "read")
    assert made.exit_code == 0
    # The key stands alone on stdout, so that a script can take it from there.
    assert made.stdout.strip().startswith("rfl_")
    assert made.stdout.count("\n") == 1
    assert "read" in made.stderr
    listed = run(tmp_path / "new", "list", "--json")
    [key] = json.loads(listed.stdout)
    assert (key["name"], key["tenant"], key["scopes"]) == ("laptop", "local", ["read"])
    assert made.stdout.strip() not in listed.stdout


def test_keys_are_listed_by_tenant_and_revoked_by_id(tmp_path: Path) -> None:
    ours = make(tmp_path, "ours", "--tenant", "lab-1", "--scope", "admin")
    theirs = make(tmp_path, "theirs", "--tenant", "lab-2")
    assert theirs["scopes"] == ["read", "write"]
    assert "theirs" not in run(tmp_path, "list", "--tenant", "lab-1").stdout
    for _ in range(2):
        assert run(tmp_path, "revoke", ours["id"]).exit_code == 0
    kept = json.loads(run(tmp_path, "list", "--json").stdout)
    assert {key["id"]: bool(key["revoked_at"]) for key in kept} == {
        ours["id"]: True,
        theirs["id"]: False,
    }
    unknown = run(tmp_path, "revoke", "nothing")
    assert (unknown.exit_code, "'nothing'" in unknown.stderr) == (3, True)


def test_keys_end_by_themselves_are_rotated_and_show_it_all(tmp_path: Path) -> None:
    made = run(tmp_path, "create", "ci", "--tenant", "lab-1", "--expires", "90d")
    assert made.exit_code == 0
    assert ", until 20" in made.stderr
    [old] = json.loads(run(tmp_path, "list", "--json").stdout)
    began, ends = (datetime.fromisoformat(old[name]) for name in ("created_at", "expires_at"))
    assert ends - began == timedelta(days=90)
    rotated = run(tmp_path, "rotate", old["id"], "--overlap", "7d")
    assert rotated.exit_code == 0
    assert rotated.stdout.startswith("rfl_")
    assert rotated.stdout != made.stdout
    new, was = json.loads(run(tmp_path, "list", "--json", "--tenant", "lab-1").stdout)
    assert (new["name"], new["scopes"], new["state"]) == ("ci", ["read", "write"], "valid")
    assert (was["successor"], was["state"]) == (new["id"], "valid")
    overlap = datetime.fromisoformat(was["expires_at"]) - datetime.fromisoformat(new["created_at"])
    assert timedelta(days=6) < overlap <= timedelta(days=7)
    twice = run(tmp_path, "rotate", old["id"])
    assert (twice.exit_code, "rotated before" in twice.stderr) == (3, True)
    last = make_from(run(tmp_path, "rotate", new["id"], "--overlap", "0m", "--json"))
    states = {key["id"]: key["state"] for key in json.loads(run(tmp_path, "list", "--json").stdout)}
    assert states == {last["id"]: "valid", new["id"]: "expired", old["id"]: "valid"}
    assert "expired" in run(tmp_path, "list").stdout
    assert run(tmp_path, "rotate", new["id"]).exit_code == 3
    assert run(tmp_path, "rotate", "nothing").exit_code == 3


@pytest.mark.parametrize(
    "words",
    [
        ("create", "a", "--expires", "0d"),
        ("create", "a", "--expires", "90"),
        ("create", "a", "--expires", "-1d"),
        ("create", "a", "--expires", "99999d"),
        ("create", "a", "--expires", "1y"),
        ("rotate", "a", "--overlap", "soon"),
    ],
)
def test_times_that_are_none_are_refused_with_what_is_allowed(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    refused = run(tmp_path, *words)
    assert refused.exit_code == 2
    assert "90d" in refused.stderr


def test_all_keys_are_forgotten_once_none_is_valid_and_only_on_purpose(tmp_path: Path) -> None:
    key = make(tmp_path, "mine", "--tenant", "lab")
    valid = run(tmp_path, "reset", "--yes")
    assert (valid.exit_code, "revoke them first" in valid.stderr) == (3, True)
    assert run(tmp_path, "revoke", key["id"]).exit_code == 0
    unsure = run(tmp_path, "reset")
    assert (unsure.exit_code, "--yes" in unsure.stderr) == (2, True)
    assert len(json.loads(run(tmp_path, "list", "--json").stdout)) == 1
    assert make_from(run(tmp_path, "reset", "--yes", "--json")) == {"removed": [key["id"]]}
    assert json.loads(run(tmp_path, "list", "--json").stdout) == []
    database = Database(Settings(data_dir=tmp_path).database_url)
    with database.of(LOCAL).read() as session:
        [event] = Audit(session).page(limit=9).items
    database.dispose()
    assert (event.action, event.detail) == ("keys.reset", {"keys": [key["id"]]})


def make_from(done: Result) -> dict[str, Any]:
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "words",
    [
        ("", "--tenant", "lab"),
        ("n" * 101,),
        ("name", "--tenant", "Lab"),
        ("name", "--tenant", "a b"),
        ("name", "--tenant", ""),
        ("name", "--tenant", "x" * 64),
        ("name", "--scope", "root"),
    ],
)
def test_names_and_scopes_that_are_none_are_refused(tmp_path: Path, words: tuple[str]) -> None:
    refused = run(tmp_path, "create", *words)
    assert refused.exit_code == 2
    assert "rfl_" not in refused.output


@contextmanager
def public_api(folder: Path, log: Path) -> Iterator[tuple[str, psutil.Process]]:
    """`reflectory api` on every address of this machine, telling all that it can tell."""
    environment = {
        **os.environ,
        "REFLECTORY_LOG_LEVEL": "DEBUG",
        "REFLECTORY_ACCESS_LOG": "true",
        "REFLECTORY_EVENT_POLL_SECONDS": "0.05",
    }
    with socket.create_server(("0.0.0.0", 0)) as free:
        port = free.getsockname()[1]
    environment |= {"REFLECTORY_HOST": "0.0.0.0", "REFLECTORY_PORT": str(port)}
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "service.cli", "api", "--data-dir", str(folder)]
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
    try:
        wait_until(lambda: process.poll() is not None or _answers(url))
        assert process.poll() is None, log.read_text()
        yield url, psutil.Process(process.pid)
    finally:
        process.kill()
        process.wait()


def _answers(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/healthz", timeout=5).status_code == 200
    except httpx2.TransportError:
        return False


def test_a_public_server_serves_keys_until_another_process_revokes_them_and_tells_none(
    tmp_path: Path,
) -> None:
    site = Site(tmp_path / "data")
    folder, log = site.settings.data_dir, tmp_path / "api.log"
    key = make(folder, "watcher", "--scope", "write")
    study = site.study()
    bearer = {"Authorization": f"Bearer {key['key']}"}
    with (
        public_api(folder, log) as (url, process),
        httpx2.Client(base_url=url, timeout=600) as client,
    ):
        assert client.get("/v1/studies").status_code == 401
        wrong = {"Authorization": f"Bearer {WRONG}"}
        assert client.get("/v1/studies", headers=wrong).status_code == 401
        assert client.post("/login", data={"key": WRONG}).status_code == 401
        assert client.get("/v1/studies", headers=bearer).status_code == 200
        login = client.post("/login", data={"key": key["key"]})
        assert login.status_code == 303
        cookie = client.cookies["reflectory"]
        assert client.post("/v1/studies", headers=bearer, json={"task": 7}).status_code == 422
        events = f"/v1/studies/{study.id}/events"
        with client.stream("GET", events, timeout=600) as stream:
            lines = stream.iter_lines()
            assert any(line.startswith("id: 1") for line in lines)
            ended = httpx2.post(f"{url}/logout", cookies={"reflectory": cookie}, timeout=600)
            assert ended.status_code == 303
            # The session is over, and so is what it listens to.
            assert not [line for line in lines if line.startswith("id:")]
        assert client.get("/v1/studies").status_code == 401
        with client.stream("GET", events, headers=bearer, timeout=600) as stream:
            lines = stream.iter_lines()
            assert any(line.startswith("id: 1") for line in lines)
            assert run(folder, "revoke", key["id"]).exit_code == 0
            # It ends by itself: a stream that went on would be waited for in vain.
            assert not [line for line in lines if line.startswith("id:")]
        wait_until(lambda: client.get("/v1/studies", headers=bearer).status_code == 401)
        words = " ".join([*process.cmdline(), *process.environ().values()])
    told = log.read_text()
    assert "a request was refused" in told
    for secret in (key["key"], WRONG, cookie):
        assert secret not in told
        assert secret not in words
    with site.database.read() as session:
        assert Keys(session).get(key["id"]).last_used_at is not None
    site.close()
