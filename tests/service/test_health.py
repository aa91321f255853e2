import os
import time

from starlette.testclient import TestClient

from tests.service.site import Site

PROBLEM = "application/problem+json"


def test_the_process_is_alive_whatever_else_is_not(client: TestClient) -> None:
    assert client.get("/healthz").json() == {"status": "alive"}


def test_the_server_is_ready_while_the_coordinator_works(client: TestClient, site: Site) -> None:
    away = client.get("/readyz")
    assert (away.status_code, away.headers["content-type"]) == (503, PROBLEM)
    assert [fault["path"] for fault in away.json()["errors"]] == ["coordinator"]
    site.settings.coordinator_alive.touch()
    assert client.get("/readyz").json() == {"status": "ready"}
    long_ago = time.time() - site.settings.coordinator_silence_seconds - 5
    os.utime(site.settings.coordinator_alive, (long_ago, long_ago))
    assert client.get("/readyz").status_code == 503


def test_a_database_without_our_tables_is_not_ready(client: TestClient, site: Site) -> None:
    site.settings.coordinator_alive.touch()
    with site.database.write() as session:
        session.connection().exec_driver_sql("ALTER TABLE reflectory_version RENAME TO gone")
    away = client.get("/readyz")
    assert away.status_code == 503
    assert [fault["path"] for fault in away.json()["errors"]] == ["database"]
