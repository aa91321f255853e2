import os
import shutil
import socket
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from starlette.testclient import TestClient

from service.api.dashboard.own_process import running_mark
from service.app import create_app
from service.data_dir.locks import hold
from service.data_dir.machine_name import coordinator_name
from service.settings import Settings
from storage.fleet.coordinators import CoordinatorRecord, Coordinators, SlotRecord
from tests.service.processes import running_api, wait_until
from tests.service.site import SMALL_SPEC, Site, now

PROBLEM = "application/problem+json"


HERE = ("127.0.0.1", 50000)
"""The client speaks from the server's own machine."""


def faults(client: TestClient) -> dict[str, str]:
    """What is not ready, and why."""
    away = client.get("/readyz")
    assert (away.status_code, away.headers["content-type"]) == (503, PROBLEM)
    assert int(away.headers["Retry-After"]) > 0
    found = {fault["path"]: fault["message"] for fault in away.json()["errors"]}
    assert all(found.values())
    return found


def parts(client: TestClient) -> dict[str, Any]:
    ready = client.get("/readyz")
    assert ready.status_code == 200
    assert ready.json()["status"] == "ready"
    return {part["name"]: part for part in ready.json()["parts"]}


def seen(
    site: Site, owner: str, *, seconds_ago: float = 0.0, slots: tuple[SlotRecord, ...] = ()
) -> None:
    at = now() - timedelta(seconds=seconds_ago)
    record = CoordinatorRecord(
        owner=owner, slots=slots, measuring_slots=(), figures={}, started_at=at, seen_at=at
    )
    with site.database.write() as session:
        Coordinators(session).report(record)


def test_the_process_is_alive_whatever_else_is_not(client: TestClient) -> None:
    alive = client.get("/healthz").json()
    assert alive == {"status": "alive", "version": version("reflectory")}


def test_the_server_is_ready_while_the_coordinator_works(client: TestClient, site: Site) -> None:
    assert set(faults(client)) == {"coordinator"}
    site.settings.coordinator_alive.touch()
    found = parts(client)
    assert list(found) == ["database", "tables", "store", "coordinator", "dashboard"]
    assert all(part["ok"] for part in found.values() if part["required"])
    long_ago = time.time() - site.settings.coordinator_silence_seconds - 5
    os.utime(site.settings.coordinator_alive, (long_ago, long_ago))
    assert "last heard" in faults(client)["coordinator"]


def test_a_server_with_an_agent_of_its_own_is_ready_when_that_has_joined(
    tmp_path: Path,
) -> None:
    site = Site(tmp_path / "data", has_own_agent=True)
    site.settings.coordinator_alive.touch()
    owner = coordinator_name(site.settings.data_dir)
    app = create_app(site.settings)
    with TestClient(app, base_url="http://localhost:8080", client=HERE) as client:
        seen(site, owner)
        assert "has not joined" in faults(client)["agent"]
        seen(site, owner, slots=(SlotRecord("cpu-0", "cpu", "a CPU", 1.0, machine="here"),))
        assert parts(client)["agent"]["ok"]
    site.close()


def test_another_machines_coordinator_will_do_and_a_killed_ones_row_will_not(
    client: TestClient, site: Site
) -> None:
    seen(site, coordinator_name(site.settings.data_dir))
    seen(site, "silent:/data", seconds_ago=site.settings.coordinator_silence_seconds + 5)
    assert set(faults(client)) == {"coordinator"}
    seen(site, "other:/data")
    assert parts(client)["coordinator"]["ok"]


def test_a_database_without_our_tables_is_not_ready(client: TestClient, site: Site) -> None:
    site.settings.coordinator_alive.touch()
    with site.database.write() as session:
        session.connection().exec_driver_sql("ALTER TABLE reflectory_version RENAME TO gone")
    assert "migrate" in faults(client)["tables"]
    assert set(faults(client)) == {"tables"}


def test_a_database_that_is_away_is_not_ready(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, database_url="postgresql://u:secret@127.0.0.1:1/nobody")
    settings.coordinator_alive.touch()
    with TestClient(create_app(settings), base_url="http://localhost:8080", client=HERE) as client:
        found = faults(client)
    assert set(found) == {"database", "tables"}
    assert "does not answer" in found["database"]
    assert "secret" not in found["database"]


def test_a_store_that_cannot_be_written_to_is_not_ready(tmp_path: Path) -> None:
    # Nobody writes there, the superuser included.
    site = Site(tmp_path / "data", artifacts_dir=Path("/proc/self/fdinfo"), disk_reserve=0)
    site.settings.coordinator_alive.touch()
    with TestClient(
        create_app(site.settings), base_url="http://localhost:8080", client=HERE
    ) as client:
        assert "cannot be written to" in faults(client)["store"]
    site.close()


def test_a_store_without_room_is_not_ready(tmp_path: Path) -> None:
    site = Site(tmp_path / "data", disk_reserve=1 << 60)
    site.settings.coordinator_alive.touch()
    with TestClient(
        create_app(site.settings), base_url="http://localhost:8080", client=HERE
    ) as client:
        assert "bytes free" in faults(client)["store"]
    site.close()


def test_a_store_that_was_gone_before_the_start_is_missed(tmp_path: Path) -> None:
    site = Site(tmp_path / "data")
    site.settings.coordinator_alive.touch()
    study = site.study()
    site.trial(study, 0)
    shutil.rmtree(site.settings.artifacts_dir)
    with TestClient(
        create_app(site.settings), base_url="http://localhost:8080", client=HERE
    ) as client:
        assert "names 2 files" in faults(client)["store"]
    site.close()


def test_a_dashboard_that_is_away_is_told_of_and_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "dashboard.sock"
    site = Site(tmp_path / "data", dashboard_socket=path)
    site.settings.coordinator_alive.touch()
    with TestClient(
        create_app(site.settings), base_url="http://localhost:8080", client=HERE
    ) as client:
        away = parts(client)["dashboard"]
        assert (away["ok"], away["required"]) == (False, False)
        assert "does not run" in away["message"]
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(str(path))
            listener.listen()
            sleeping = parts(client)["dashboard"]
            assert (sleeping["ok"], "next visit" in sleeping["message"]) == (True, True)
            listener.setblocking(False)
            with pytest.raises(BlockingIOError):
                listener.accept()
        with hold(running_mark(path)):
            awake = parts(client)["dashboard"]
            assert (awake["ok"], "runs" in awake["message"]) == (True, True)
    site.close()


def test_others_are_not_told_where_things_are(client: TestClient, site: Site) -> None:
    forwarded = client.get("/readyz", headers={"X-Forwarded-For": "203.0.113.9"})
    assert forwarded.status_code == 503
    assert {fault["path"] for fault in forwarded.json()["errors"]} == {"coordinator"}
    (fault,) = client.get("/readyz").json()["errors"]
    assert "coordinator" in fault["message"]
    assert fault["message"] not in forwarded.text


def test_probes_are_answered_while_every_thread_waits(site: Site) -> None:
    """Sixty writers wait for a lock, and requests have forty threads."""
    site.settings.coordinator_alive.touch()
    settings = site.settings.model_copy(update={"coordinator_silence_seconds": 3600.0})
    database = sqlite3.connect(site.settings.data_dir / "reflectory.db", isolation_level=None)
    with (
        closing(database),
        running_api(settings) as api,
        httpx2.Client(base_url=api.url, timeout=600) as http,
        ThreadPoolExecutor(60) as pool,
    ):
        database.execute("BEGIN IMMEDIATE")
        submit = {"json": SMALL_SPEC, "timeout": 120}
        waiting = [pool.submit(httpx2.post, f"{api.url}/v1/studies", **submit) for _ in range(60)]
        wait_until(lambda: psutil.Process(api.process.pid).num_threads() > 40)
        for path in ("/healthz", "/readyz"):
            assert http.get(path).status_code == 200
        assert not all(one.done() for one in waiting)
        database.execute("ROLLBACK")
        # Where this machine is slow, some have waited for as long as they may.
        assert {one.result().status_code for one in waiting} <= {202, 503}
