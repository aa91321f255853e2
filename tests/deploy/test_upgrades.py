"""What deploy/UPGRADES.md says of programs and tables of different versions."""

import subprocess
import sys
from pathlib import Path

import httpx2
from alembic import command
from sqlalchemy import text

from storage.schema import VERSION_TABLE, migration_config
from tests.service.processes import running_api
from tests.service.site import Site


def wrong_parts(url: str) -> set[str]:
    """What `/readyz` says is not as it has to be."""
    answer = httpx2.get(f"{url}/readyz", timeout=300)
    assert answer.status_code == 503
    return {fault["path"] for fault in answer.json()["errors"]}


def migrate(data_dir: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "service.cli", "migrate", "--data-dir", str(data_dir)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_new_program_waits_for_its_tables_and_needs_no_restart(tmp_path: Path) -> None:
    site = Site(tmp_path / "data")
    study = site.study()
    with site.database.write() as session:
        command.downgrade(migration_config(session.connection()), "-1")
    with running_api(site.settings) as api:
        assert httpx2.get(f"{api.url}/healthz").status_code == 200
        assert "tables" in wrong_parts(api.url)
        assert migrate(tmp_path / "data").returncode == 0
        # No coordinator works here; the tables are in order.
        assert wrong_parts(api.url) == {"coordinator"}
        assert httpx2.get(f"{api.url}/v1/studies/{study.id}").json()["id"] == study.id
    site.close()


def test_an_old_program_touches_no_tables_of_a_newer_one(tmp_path: Path) -> None:
    site = Site(tmp_path / "data")
    with site.database.write() as session:
        session.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    with running_api(site.settings) as api:
        # Alive, so that nothing ends it that runs; not ready, so that nobody takes it for upgraded.
        assert httpx2.get(f"{api.url}/healthz").status_code == 200
        assert "tables" in wrong_parts(api.url)
    refused = migrate(tmp_path / "data")
    assert refused.returncode == 1
    assert "9999" in refused.stderr
    with site.database.read() as session:
        assert session.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}")) == "9999"
    site.close()
