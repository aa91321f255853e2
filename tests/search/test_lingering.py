"""Processes that do not end with their attempts: their slots are wanted."""

from collections.abc import Generator
from typing import Any

import pytest

from storage.attempts import Attempts
from storage.records import AttemptKind, AttemptState
from tests.search.coordinating import Site
from tests.service.running import wait_until

SPEC: dict[str, Any] = {
    "task": {"kind": "digits"},
    "architectures": ["rnn"],
    "parametrizations": ["low_rank"],
    "space": {"hidden_size": 8},
    "objectives": ["quality", "parameters"],
    "sampler": {"kind": "random"},
    "budget": {"trials": 2, "epochs": 1},
}


@pytest.fixture
def site(tmp_path_factory: pytest.TempPathFactory) -> Generator[Site]:
    made = Site(tmp_path_factory.mktemp("lingering"))
    yield made
    made.close()


def test_a_process_that_outlives_its_attempt_gives_its_slot_back(site: Site) -> None:
    """There is one slot, and each attempt stands still on it when its last word is said."""
    study_id = site.http.post("/v1/studies", json=SPEC).json()["id"]
    coordinator = site.coordinate(
        "never", 0, lease_seconds=2.0, fork_server="tests.search.executors.lingering"
    )
    wait_until(
        lambda: site.http.get(f"/v1/studies/{study_id}").json()["state"] == "finished",
        what=f"the study's end; log {site.log}",
    )
    coordinator.terminate()
    coordinator.join(timeout=20)
    assert coordinator.exitcode == 0
    with site.database.read() as session:
        attempts = Attempts(session).of_study(study_id, AttemptKind.TRAIN)
    assert [row.state for row in attempts] == [AttemptState.ENDED] * 2
    assert "a process outlives its attempt" in site.log.read_text()
