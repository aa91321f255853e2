"""What deploy/docs/how-to/upgrade.md says of programs and tables of different versions."""

import subprocess
import sys
from pathlib import Path

import httpx2
import pytest
from alembic import command
from sqlalchemy import text

from storage.engine import Database
from storage.schema import VERSION_TABLE, migration_config
from tests.chaos.audit import audit_fleet, audit_folders, audit_study
from tests.chaos.damage import step_back
from tests.service.processes import running_api
from tests.service.running import Server, wait_until
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


@pytest.mark.nightly
@pytest.mark.parametrize("migrations", range(5))
def test_trials_that_ran_when_a_server_was_killed_go_on_in_a_newer_one(
    tmp_path: Path, migrations: int
) -> None:
    """Of so many migrations before; what an older program wrote into its rows is not tried here."""
    server = Server(tmp_path / "data", workers=2)
    url = f"sqlite:///{server.data_dir / 'reflectory.db'}"
    try:
        server.start()
        study_id = server.submit(
            {
                "task": {"kind": "digits"},
                "architectures": ["rnn"],
                "parametrizations": ["dense", "low_rank"],
                "space": {"hidden_size": 16, "batch_size": 16},
                "objectives": ["quality", "parameters"],
                "budget": {"trials": 4, "epochs": 30},
            }
        )

        def at_work() -> set[int]:
            return {
                trial["number"]
                for trial in server.trials(study_id)
                if trial["attempts"] and trial["attempts"][-1]["state"] == "running"
            }

        wait_until(
            lambda: server.study(study_id)["progress"]["epochs_trained"] > 10 and at_work(),
            what="trials at work",
        )
        running = at_work()
        server.kill_everything()
        if migrations:
            step_back(url, migrations)
        server.start()
        study = server.wait(study_id)
        assert study["state"] == "finished", study["state_reason"]
        states = {
            trial["number"]: [attempt["state"] for attempt in trial["attempts"]]
            for trial in server.trials(study_id)
        }
        # Some may have ended between the look and the kill.
        assert all(found[-1] == "ended" for found in states.values())
        assert [number for number in running if states[number] == ["lost", "ended"]], states
        front = server.get(f"/v1/studies/{study_id}/front")
        assert server.stop() == 0
        database = Database(url)
        optuna = f"sqlite:///{server.data_dir / 'optuna.db'}"
        assert audit_study(database, optuna, study_id, front) == {"complete": 4}
        audit_fleet(database)
        audit_folders(server.data_dir)
        database.dispose()
    finally:
        server.close()
