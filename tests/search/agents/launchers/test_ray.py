"""A real server whose agents are placed on a real Ray cluster, and given back again."""

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from service.auth.api_keys import create_key
from storage.engine import Database
from storage.records import LOCAL
from tests.ray_clusters import RayCluster
from tests.service.running import Server, wait_until

# Agents import all that a machine's do, on nodes that were started for this.
pytestmark = pytest.mark.slow

_PATIENCE_SECONDS = 300.0
SPEC = {
    "task": {"kind": "digits"},
    "architectures": ["rnn"],
    "parametrizations": ["dense"],
    "space": {"hidden_size": {"low": 8, "high": 32}, "batch_size": 32},
    "objectives": ["quality", "parameters"],
    "sampler": {"kind": "random"},
    "budget": {"trials": 4, "epochs": 2},
    "seed": 3,
}


@pytest.fixture
def server(ray_cluster: RayCluster, tmp_path: Path) -> Iterator[Server]:
    """One that asks for keys, so that its launcher has to make one for agents."""
    variables = {
        "REFLECTORY_EXECUTOR": "ray",
        "REFLECTORY_RAY_ADDRESS": ray_cluster.address,
        "REFLECTORY_RAY_SCRATCH": str(ray_cluster.scratch),
        **ray_cluster.environment,
    }
    (tmp_path / "data").mkdir()
    database = Database(f"sqlite:///{tmp_path / 'data' / 'reflectory.db'}")
    database.migrate()
    key = create_key(database.of(LOCAL), name="me", scopes=("admin",)).text
    database.dispose()
    server = Server(tmp_path / "data", workers=2, environment=variables)
    server.http.headers["Authorization"] = f"Bearer {key}"
    yield server.start()
    server.close()


def agents(cluster: RayCluster) -> list[psutil.Process]:
    """The agents' processes that the cluster's nodes run."""
    found = list[psutil.Process]()
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
        except psutil.Error:
            continue
        if "worker" in words and any(str(cluster.scratch) in word for word in words):
            found.append(process)
    return found


def test_a_study_runs_on_agents_that_are_placed_for_it(
    server: Server, ray_cluster: RayCluster
) -> None:
    assert not agents(ray_cluster), "without work none is placed"
    study_id = server.submit(SPEC)
    assert server.wait(study_id, seconds=_PATIENCE_SECONDS)["state"] == "finished"
    trials = server.trials(study_id)
    assert [trial["outcome"] for trial in trials] == ["complete"] * 4
    ran_on = {str(attempt["machine"]) for trial in trials for attempt in trial["attempts"]}
    assert ran_on
    assert all(machine.startswith("ray-") for machine in ran_on)
    # The key is in no command line, and the service's end takes agents and their key along.
    keys = server.get("/v1/keys")["items"]
    (made,) = (key for key in keys if key["name"].startswith("agents on Ray"))
    assert made["scopes"] == ["work"]
    assert not any("rfl_" in word for agent in agents(ray_cluster) for word in agent.cmdline())
    server.stop()
    wait_until(lambda: not agents(ray_cluster), what="an end of all agents")


def test_an_agent_that_is_killed_comes_back_on_its_place(
    server: Server, ray_cluster: RayCluster
) -> None:
    study_id = server.submit({**SPEC, "budget": {"trials": 2, "epochs": 60}})

    def running() -> set[str]:
        attempts = [one for trial in server.trials(study_id) for one in trial["attempts"]]
        return {str(one["machine"]) for one in attempts if one["state"] == "running"}

    wait_until(running, what="an attempt that runs", seconds=_PATIENCE_SECONDS)
    for agent in agents(ray_cluster):
        agent.kill()
    assert server.wait(study_id, seconds=_PATIENCE_SECONDS)["state"] == "finished"
    assert [trial["outcome"] for trial in server.trials(study_id)] == ["complete"] * 2
