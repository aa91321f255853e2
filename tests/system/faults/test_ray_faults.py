"""A real server whose attempts run on a real Ray cluster of which parts, or all, are killed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from storage.engine import Database
from tests.chaos.audit import audit_study
from tests.ray_clusters import RayCluster
from tests.service.running import Server, wait_until

# Each starts a cluster and a server, and some wait until a head that is gone is given up.
pytestmark = pytest.mark.slow

_PATIENCE_SECONDS = 600.0
SPEC = {
    "task": {"kind": "digits"},
    "architectures": ["rnn"],
    "parametrizations": ["dense"],
    "space": {"hidden_size": {"low": 8, "high": 64}, "batch_size": 32},
    "objectives": ["quality", "parameters", "throughput"],
    "sampler": {"kind": "random"},
    "budget": {"trials": 6, "epochs": 60},
    "seed": 3,
}


@pytest.fixture
def cluster() -> Iterator[RayCluster]:
    """One head with one CPU, and one more node with another."""
    with RayCluster(cpus=1) as cluster:
        cluster.add_node(cpus=1)
        yield cluster


@pytest.fixture
def server(cluster: RayCluster, tmp_path: Path) -> Iterator[Server]:
    variables = {
        "REFLECTORY_EXECUTOR": "ray",
        "REFLECTORY_RAY_ADDRESS": cluster.address,
        "REFLECTORY_RAY_SCRATCH": str(cluster.scratch),
        "REFLECTORY_LEASE_SECONDS": "6",
        **cluster.environment,
    }
    server = Server(tmp_path / "data", workers=1, environment=variables)
    yield server.start()
    server.close()


def machines(server: Server, study_id: str) -> set[str]:
    """Where attempts of the study run."""
    attempts = [one for trial in server.trials(study_id) for one in trial["attempts"]]
    return {str(one["machine"]) for one in attempts if one["state"] == "running"}


def attempts(server: Server, study_id: str) -> list[dict[str, Any]]:
    return [one for trial in server.trials(study_id) for one in trial["attempts"]]


def audited(server: Server, study_id: str) -> None:
    """The study comes to its end, with every trial complete, ended once and told once."""
    ended = server.wait(study_id, seconds=_PATIENCE_SECONDS)
    assert ended["state"] == "finished", ended["state_reason"]
    front = server.get(f"/v1/studies/{study_id}/front")
    database = Database(f"sqlite:///{server.data_dir / 'reflectory.db'}")
    optuna_url = f"sqlite:///{server.data_dir / 'optuna.db'}"
    assert audit_study(database, optuna_url, study_id, front) == {"complete": 6}
    database.dispose()


def test_a_node_that_is_killed_costs_its_attempts_and_no_trial(
    server: Server, cluster: RayCluster
) -> None:
    study_id = server.submit(SPEC)
    wait_until(
        lambda: len(machines(server, study_id)) == 2,
        what=f"attempts on both nodes; log {server.log}",
        seconds=_PATIENCE_SECONDS,
    )
    cluster.nodes[1].kill()
    audited(server, study_id)
    lost = [one for one in attempts(server, study_id) if one["state"] == "lost"]
    assert lost
    log = server.http.get(f"/v1/studies/{study_id}/trials/0/log").text
    assert "the attempt ends as complete" in log


def test_a_head_that_is_killed_costs_what_runs_and_no_study(
    server: Server, cluster: RayCluster
) -> None:
    """The whole cluster is lost: its head holds all of Ray's state in memory."""
    study_id = server.submit(SPEC)
    wait_until(
        lambda: len(machines(server, study_id)) == 2,
        what=f"attempts on both nodes; log {server.log}",
        seconds=_PATIENCE_SECONDS,
    )
    cluster.head.kill()
    wait_until(
        lambda: (
            cluster.address in server.log.read_text() and "no Ray cluster" in server.log.read_text()
        ),
        what=f"a driver that is given up; log {server.log}",
        seconds=_PATIENCE_SECONDS,
    )
    assert server.study(study_id)["state"] == "running"
    assert server.http.get("/readyz").status_code == 200
    cluster.nodes[1].kill()
    cluster.start_head(cpus=2)
    audited(server, study_id)
    reasons = [one["reason"] for one in attempts(server, study_id) if one["state"] == "lost"]
    assert reasons
    own = ("exited with code ", "crashed by signal ", "out of memory: ")
    assert not any(why.startswith(own) for why in reasons), reasons
