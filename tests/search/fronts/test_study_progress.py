"""How long a study still takes, about: at its pace so far, from the first epochs on."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import update

from search.documents.progress import StudyProgress
from search.fronts.figures import Figures
from search.fronts.study_progress import progress
from storage.records import TrialCounts, TrialOrigin, TrialState
from storage.repositories.attempts import DeviceTime
from storage.repositories.studies import Studies
from storage.repositories.tallies import Tally
from storage.repositories.trials import Trials
from storage.tables import TrialRow
from tests.service.site import Site

TRIALS = 4
EPOCHS = 10
BUDGET = {"trials": TRIALS, "epochs": EPOCHS}


def _progress(
    site: Site, *, epochs: int, ended: int = 0, seconds: float = 100, **budget: Any
) -> StudyProgress:
    study = site.study(budget={**BUDGET, **budget}, sampler={"kind": "random"})
    counts = TrialCounts(
        by_state={TrialState.COMPLETE: ended, TrialState.RUNNING: 1},
        dispatched=ended + 1,
        refused=0,
        under_way=1,
    )
    tally = Tally(
        counts, epochs, measuring_seconds=0.0, device_time=DeviceTime(seconds, by_the_clock=False)
    )
    with site.database.write() as session:
        Studies(session).add_running_seconds(study.id, seconds)
    with site.database.read() as session:
        return progress(session, Studies(session).get(study.id), Figures(), tally)


def _left(site: Site, **given: Any) -> float | None:
    return _progress(site, **given).eta_seconds


def test_nothing_is_known_before_the_first_epoch(site: Site) -> None:
    assert _left(site, epochs=0) is None


def test_there_is_a_pace_before_the_first_trial_has_ended(site: Site) -> None:
    # 5 of 40 epochs in 100 seconds.
    assert _left(site, epochs=5) == pytest.approx(700)


def test_the_wait_for_the_first_slot_is_no_pace(site: Site) -> None:
    """A study that stood behind others for an hour, and has trained for 100 seconds."""
    study = site.study(budget=BUDGET, sampler={"kind": "random"})
    site.run(study)
    with site.database.write() as session:
        Studies(session).add_running_seconds(study.id, 3700)
        asked_at = Studies(session).get(study.id).started_at
    assert asked_at is not None
    site.trial(study, 0, state=TrialState.RUNNING)
    for epoch in range(1, 6):
        site.epoch(study, 0, epoch)
    with site.database.write() as session:
        begun = {"started_at": asked_at + timedelta(hours=1)}
        session.execute(update(TrialRow).where(TrialRow.study_id == study.id).values(begun))
    with site.database.read() as session:
        found = progress(session, Studies(session).get(study.id), Figures())
    assert found.wall_seconds == pytest.approx(3700)
    assert found.eta_seconds == pytest.approx(700)


def test_trials_that_ended_count_as_such_however_few_epochs_they_had(site: Site) -> None:
    assert _left(site, epochs=8, ended=2) == pytest.approx(100)


def test_those_that_are_nearly_there_count_too(site: Site) -> None:
    # One has ended, one has 8 of 10 epochs: 1.8 trials in 90 seconds.
    assert _left(site, epochs=18, ended=1, seconds=90) == pytest.approx(110)


@pytest.mark.parametrize(
    ("budget", "share"),
    [
        ({}, 5 / 40),
        ({"wall_seconds": 250}, 0.4),
        ({"total_epochs": 20}, 0.25),
        ({"device_hours": 200 / 3600}, 0.5),
        ({"wall_seconds": 250, "total_epochs": 6, "device_hours": 1}, 5 / 6),
    ],
    ids=lambda given: "+".join(given) if isinstance(given, dict) else None,
)
def test_the_part_of_the_budget_counts_of_which_most_is_used(
    site: Site, budget: dict[str, Any], share: float
) -> None:
    found = _progress(site, epochs=5, **budget)
    assert found.share == pytest.approx(share)
    assert found.eta_seconds == pytest.approx(100 * (1 - share) / share)


def test_more_epochs_than_were_planned_leave_nothing(site: Site) -> None:
    assert _left(site, epochs=TRIALS * EPOCHS + 3, ended=TRIALS - 1) == 0


def test_confirmations_use_up_nothing(site: Site) -> None:
    """Those that run are no trials of the budget: what is done stays done."""
    study = site.study(budget=BUDGET, sampler={"kind": "random"})
    for number in range(TRIALS):
        site.trial(study, number, quality=0.5, state=TrialState.STOPPED)
    site.trial(study, TRIALS, state=TrialState.RUNNING)
    with site.database.write() as session:
        again = replace(
            Trials(session).get(study.id, TRIALS),
            number=TRIALS + 1,
            origin=TrialOrigin.CONFIRMATION,
            repeats=0,
        )
        Trials(session).add(again)

    def share() -> float | None:
        with site.database.read() as session:
            return progress(session, Studies(session).get(study.id), Figures()).share

    assert share() == 1
