"""What a rule of stopping compares a trial with."""

from typing import Any

from search.running.early_stopping import judge
from search.studies.spec import StudySpec
from storage.records import StudyRecord, TrialState
from storage.repositories.studies import Studies
from tests.service.site import Site

RULE: dict[str, Any] = {"kind": "pareto_gain", "startup_trials": 2, "never_stopped": 0.0}


def study_of(site: Site, violation: float | None) -> StudyRecord:
    """Two ordinary trials, one that is far smaller and better, and one that runs."""
    study = site.study(
        early_stopping=RULE,
        objectives=["quality", "parameters"],
        limits={"min_throughput_ratio": 1.0},
        sampler={"kind": "random"},
        budget={"trials": 10, "epochs": 4},
    )
    trials: list[dict[str, Any]] = [
        {"quality": 0.6, "parameters": 5000},
        {"quality": 0.6, "parameters": 5000},
        {"quality": 0.95, "parameters": 100, "violation": violation},
        {"state": TrialState.RUNNING, "parameters": 1000},
    ]
    for number, given in enumerate(trials):
        site.trial(study, number, **given)
        for epoch in range(1, 2 if number == 3 else 5):
            site.epoch(study, number, epoch, validation=given.get("quality", 0.6))
    with site.database.write() as session:
        Studies(session).set_reference_point(study.id, {"quality": 0.1, "parameters": 1e6})
    return study


def test_a_trial_that_breaks_a_limit_stops_no_other(site: Site) -> None:
    """Found broken by a measurement after its training, it is on no front."""
    orders: list[bool] = []
    for violation in (None, 0.5):
        study = study_of(site, violation)
        with site.database.write() as session:
            found = Studies(session).get(study.id)
            spec = StudySpec.model_validate(found.spec)
            orders.append(judge(session, found, spec, 3, 1, is_new=True) is not None)
    assert orders == [True, False]
