"""A coordinator stands still for longer than its claims hold, and wakes up in another's study."""

import os
import signal
from collections.abc import Generator
from typing import Any

import optuna
import psutil
import pytest

from search.running.claim import ClaimedDatabase
from storage.endings import StudyCause
from storage.engine import Database
from storage.errors import ClaimLost
from storage.records import StudyState, TrialState
from storage.repositories.exchanges import Exchanges
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials
from tests.search.coordinating import Site
from tests.service.running import wait_until
from tests.storage.records import START, add_study, after

SPEC: dict[str, Any] = {
    "task": {"kind": "digits"},
    "architectures": ["rnn"],
    "parametrizations": ["dense", "low_rank"],
    "space": {"rnn.hidden_size": {"low": 8, "high": 16}},
    "objectives": ["quality", "parameters"],
    "sampler": {"kind": "random"},
    "budget": {"trials": 40, "epochs": 1},
}
"""So many trials that some are left when the late one wakes up."""
TRIALS = range(SPEC["budget"]["trials"])
LEASE_SECONDS = 3.0


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Generator[Site]:
    made = Site(tmp_path_factory.mktemp("late"), lease_seconds=LEASE_SECONDS)
    yield made
    made.close()


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("asked", marks=pytest.mark.slow),
        pytest.param("ended", marks=pytest.mark.slow),
        "told",
    ],
)
def test_what_a_late_coordinator_was_about_to_do_is_done_once(site: Site, point: str) -> None:
    """It stops between Optuna and our rows, and wakes up when the other has gone on."""
    study_id = site.http.post("/v1/studies", json=SPEC).json()["id"]
    late = site.coordinate(point, 2, owner="late", sign=signal.SIGSTOP)
    stopped = psutil.Process(late.pid)
    wait_until(lambda: stopped.status() == psutil.STATUS_STOPPED, what="the point")
    said = site.log.stat().st_size
    other = site.coordinate("never", 0, owner="other")
    wait_until(lambda: told(site, study_id) > 3, what="the other's work")
    os.kill(late.pid, signal.SIGCONT)
    assert state(site, study_id) == StudyState.RUNNING, "it wakes up while there is work"
    wait_until(
        lambda: "a study is another's" in site.log.read_text()[said:], what="the late one's word"
    )
    wait_until(lambda: state(site, study_id) == StudyState.FINISHED, what="the study's end")
    assert late.poll() is None, "it is there for other studies"
    for process in (late, other):
        process.terminate()
        assert process.wait(timeout=200) == 0
    assert_whole(site, study_id)


def told(site: Site, study_id: str) -> int:
    with site.database.read() as session:
        return sum(row.kind == "tell" for row in Exchanges(session).list(study_id))


def state(site: Site, study_id: str) -> StudyState:
    with site.database.read() as session:
        return Studies(session).get(study_id).state


def assert_whole(site: Site, study_id: str) -> None:
    with site.database.read() as session:
        trials = Trials(session).list(study_id)
        exchanges = Exchanges(session).list(study_id)
    assert [trial.number for trial in trials] == list(TRIALS)
    assert {trial.state for trial in trials} == {TrialState.COMPLETE}
    for kind in ("ask", "tell"):
        assert sorted(row.trial for row in exchanges if row.kind == kind) == list(TRIALS)
    mirrored = optuna.load_study(
        study_name=f"study [{study_id}]", storage=f"sqlite:///{site.folder / 'optuna.db'}"
    )
    assert [trial.state for trial in mirrored.trials] == [
        optuna.trial.TrialState.COMPLETE for _ in TRIALS
    ]
    assert [trial.params for trial in mirrored.trials] == [trial.drawn for trial in trials]


def test_a_transaction_on_anothers_study_is_refused_and_leaves_nothing(database: Database) -> None:
    with database.write() as session:
        study_id = add_study(session).id
        Studies(session).claim(study_id, owner="ours", now=START, until=after(10))
    written: list[None] = []
    ours = ClaimedDatabase(database, study_id, owner="ours", wrote=lambda: written.append(None))
    with ours.write() as session:
        Studies(session).set_ending(study_id, StudyCause.CANCELLED, "ours")
    with database.write() as session:
        Studies(session).claim(study_id, owner="theirs", now=after(10), until=after(20))
    with pytest.raises(ClaimLost), ours.write() as session:
        Studies(session).clear_ending(study_id)
    with ours.read() as session:
        assert Studies(session).get(study_id).ending == "cancelled by ours"
