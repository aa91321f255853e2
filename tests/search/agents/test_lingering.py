"""Processes that do not end with their attempts, and such as say what cannot be."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from search.running.losses import ATTEMPTS
from storage.records import AttemptKind, AttemptState
from storage.repositories.attempts import Attempts
from storage.repositories.metrics import Metrics
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


@contextmanager
def site_with(folder: Path, fork_server: str, **given: Any) -> Generator[Site]:
    site = Site(folder, fork_server=f"tests.search.agents.executors.{fork_server}", **given)
    try:
        yield site
    finally:
        site.close()


@pytest.fixture
def lingering(tmp_path: Path) -> Generator[Site]:
    with site_with(tmp_path, "lingering", lease_seconds=2.0) as site:
        yield site


@pytest.fixture
def lying(tmp_path: Path) -> Generator[Site]:
    with site_with(tmp_path, "lying") as site:
        yield site


def test_a_process_that_outlives_its_attempt_gives_its_slot_back(lingering: Site) -> None:
    """There is one slot, and each attempt stands still on it when its last word is said."""
    site = lingering
    study_id = site.http.post("/v1/studies", json=SPEC).json()["id"]
    coordinator = site.coordinate("never", 0)
    wait_until(
        lambda: site.http.get(f"/v1/studies/{study_id}").json()["state"] == "finished",
        what=f"the study's end; log {site.log}",
    )
    coordinator.terminate()
    assert coordinator.wait(timeout=200) == 0
    with site.database.read() as session:
        attempts = Attempts(session).of_study(study_id, AttemptKind.TRAIN)
    assert [row.state for row in attempts] == [AttemptState.ENDED] * 2
    assert "a process outlives its attempt" in site.log.read_text()


def test_a_trial_whose_worker_says_what_cannot_be_fails_and_the_others_complete(
    lying: Site,
) -> None:
    site = lying
    study_id = site.http.post("/v1/studies", json=SPEC).json()["id"]
    coordinator = site.coordinate("never", 0)
    wait_until(
        lambda: site.http.get(f"/v1/studies/{study_id}").json()["state"] == "finished",
        what=f"the study's end; log {site.log}",
    )
    coordinator.terminate()
    assert coordinator.wait(timeout=600) == 0
    lied, honest = site.http.get(f"/v1/studies/{study_id}/trials").json()["items"]
    assert (lied["outcome"], honest["outcome"]) == ("failed", "complete")
    said = "said what cannot be: validation: 5; allowed are numbers from 0 to 1"
    assert lied["reason"].startswith(said)
    with site.database.read() as session:
        attempts = Attempts(session).of_trial(study_id, 0, AttemptKind.TRAIN)
        assert Metrics(session).curve(study_id, 0) == []
    assert len(attempts) == ATTEMPTS
