"""The coordinator dies while it makes a trial of what a user named, and is started again."""

from collections.abc import Generator
from typing import Any

import pytest

from search.studies.named_trials import NamedTrial, enqueue
from storage.records import TrialOrigin, TrialState
from storage.repositories.commands import Commands
from storage.repositories.exchanges import Exchanges
from storage.repositories.trials import Trials
from tests.search.coordinating import Site, break_off, finish

SPEC: dict[str, Any] = {
    "task": {"kind": "digits"},
    "architectures": ["rnn"],
    "parametrizations": ["dense", "low_rank"],
    "space": {"rnn.hidden_size": {"low": 8, "high": 16}},
    "objectives": ["quality", "parameters"],
    "budget": {"trials": 2, "epochs": 1},
    "sampler": {"kind": "tpe"},
}
NAMED = NamedTrial(
    architecture="rnn",
    parametrization="low_rank",
    hyperparameters={"rnn.hidden_size": 13, "batch_size": 64},
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Generator[Site]:
    """One for all tests: each begins its study when that of the one before has ended."""
    made = Site(tmp_path_factory.mktemp("enqueued"))
    yield made
    made.close()


@pytest.mark.parametrize("point", ["asked", pytest.param("given", marks=pytest.mark.slow)])
def test_what_was_enqueued_becomes_one_trial_whenever_the_coordinator_dies(
    site: Site, point: str
) -> None:
    study_id = site.http.post("/v1/studies", json=SPEC).json()["id"]
    command = enqueue(site.database, study_id, NAMED)
    break_off(site, point, 0)
    finish(site, study_id)
    with site.database.read() as session:
        trials = Trials(session).list(study_id)
        asked = [row.trial for row in Exchanges(session).list(study_id) if row.kind == "ask"]
        answered = Commands(session).find(command.id)
    assert answered is not None
    assert answered.trial == 0
    assert [trial.number for trial in trials] == sorted(asked) == [0, 1]
    assert {trial.state for trial in trials} == {TrialState.COMPLETE}
    named = [trial for trial in trials if trial.origin == TrialOrigin.USER]
    assert [trial.number for trial in named] == [0]
    assert named[0].parametrization == "low_rank"
    assert named[0].hyperparameters["rnn.hidden_size"] == 13
    assert named[0].hyperparameters["training.batch_size"] == 64
