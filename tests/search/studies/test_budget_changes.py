"""A larger budget is compared with what is used up in its own unit."""

import pytest

from search.errors import SpecRefused
from search.studies import commands
from search.studies.spec import Budget, StudySpec
from storage.records import StudyRecord, TrialState
from storage.repositories.studies import Studies
from tests.service.site import Site

EPOCHS = 10


def _finished(site: Site, sampler: str) -> StudyRecord:
    """Six trials ended: two after all of their epochs, four after two of them."""
    study = site.study(sampler={"kind": sampler}, budget={"trials": 3, "epochs": EPOCHS})
    site.run(study)
    for number in range(6):
        is_whole = number < 2
        state = TrialState.COMPLETE if is_whole else TrialState.STOPPED
        site.trial(study, number, quality=0.5, state=state)
        for epoch in range(EPOCHS if is_whole else 2):
            site.epoch(study, number, epoch + 1)
    site.finish(study)
    return study


def _trials(site: Site, study: StudyRecord, trials: int) -> int:
    commands.change(site.database, study.id, budget=Budget(trials=trials))
    with site.database.read() as session:
        spec = StudySpec.model_validate(Studies(session).get(study.id).spec)
    return spec.budget.trials


def test_where_trials_pause_it_is_that_of_whole_trainings(site: Site) -> None:
    study = _finished(site, "freeze_thaw")
    assert _trials(site, study, 4) == 4
    with pytest.raises(SpecRefused, match="2 is less than what is used up; allowed is 3 or more"):
        _trials(site, study, 2)


def test_else_it_is_that_of_trials(site: Site) -> None:
    study = _finished(site, "random")
    assert _trials(site, study, 7) == 7
    with pytest.raises(SpecRefused, match="5 is less than what is used up; allowed is 6 or more"):
        _trials(site, study, 5)
