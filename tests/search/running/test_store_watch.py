"""Studies wait for a store; only where room is wanting are paused trials let go for it."""

from collections import Counter
from typing import Any, cast

import pytest

from search.running.store_watch import StoreWatch
from storage.blobs.artifacts import ArtifactStore
from storage.errors import StoreFull, StoreUnavailable
from storage.records import StudyRecord, StudyState, TrialState
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials
from tests.service.site import Site

PAUSED = 10


class _Store:
    """One that takes nothing, for the reason given."""

    def __init__(self, why: Exception) -> None:
        self.why = why

    def check_room(self) -> None:
        raise self.why


@pytest.fixture
def study(site: Site) -> StudyRecord:
    """One trial runs, and ten are paused."""
    made = site.study(sampler={"kind": "freeze_thaw"}, budget={"trials": 8, "epochs": 8})
    site.run(made)
    site.trial(made, 0, state=TrialState.RUNNING)
    for number in range(1, PAUSED + 1):
        site.trial(made, number, state=TrialState.PAUSED)
    return made


def _look(site: Site, study: StudyRecord, why: Exception) -> tuple[StudyState, Counter[TrialState]]:
    StoreWatch(site.database, cast(ArtifactStore, cast(Any, _Store(why))), owner="me").look()
    with site.database.read() as session:
        states = Counter(trial.state for trial in Trials(session).list(study.id))
        return Studies(session).get(study.id).state, states


def test_a_store_that_does_not_answer_costs_no_trial(site: Site, study: StudyRecord) -> None:
    state, trials = _look(site, study, StoreUnavailable("s3://bucket does not answer"))
    assert state is StudyState.PAUSED
    assert trials[TrialState.PAUSED] == PAUSED


def test_half_of_what_may_go_is_let_go_for_room(site: Site, study: StudyRecord) -> None:
    state, trials = _look(site, study, StoreFull("the disk is full"))
    assert state is StudyState.RUNNING
    assert trials[TrialState.STOPPED] == (PAUSED - 2) // 2
