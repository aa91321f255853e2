"""An original is trained and measured whatever its speed; beyond a limit it is on no front."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from search.dispatch.runs.measuring_queue import Measuring
from search.fronts import Figures, objective_infos
from search.running import StudyContext
from search.studies.spec import StudySpec
from storage.records import StudyRecord, TrialOrigin, TrialRecord, TrialState
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials
from tests.service.site import Site

ORIGINAL = 1


def _looked(site: Site, state: TrialState, **limits: float) -> tuple[StudyRecord, TrialRecord]:
    """The original as it is once its speed is known: 0.01 s a call, and a ratio of 0.98 by chance.

    Trial 0 is better in everything but quality.
    """
    study = site.study(
        objectives=["quality", "parameters"], limits=limits, sampler={"kind": "random"}
    )
    site.run(study)
    site.trial(study, 0, quality=0.5, parameters=100)
    with site.database.write() as session:
        original = replace(
            Trials(session).get(study.id, 0),
            number=ORIGINAL,
            origin=TrialOrigin.ORIGINAL,
            state=state,
            quality=0.9 if state.has_ended else None,
            parameters=1000,
            throughput_ratio=0.98,
            latency_p99=0.01,
        )
        Trials(session).add(original)
    spec = StudySpec.model_validate(study.spec)
    infos = objective_infos(spec.task, spec.objectives)
    context = SimpleNamespace(id=study.id, database=site.database, spec=spec, infos=infos)
    with site.database.read() as session:
        record = Studies(session).get(study.id)
    measuring = Measuring(cast(StudyContext, cast(Any, context)), Figures())
    measuring.look(record, finishing=True)
    with site.database.read() as session:
        return Studies(session).get(study.id), Trials(session).get(study.id, ORIGINAL)


def _front(site: Site, study: StudyRecord) -> set[int]:
    with site.database.read() as session:
        return {point.trial for point in Figures().front(session, study).points}


def test_one_that_is_too_slow_is_on_no_front(site: Site) -> None:
    study, original = _looked(site, TrialState.COMPLETE, latency_seconds=0.002)
    assert original.state is TrialState.COMPLETE
    assert original.violation == pytest.approx(4)
    assert original.reason is not None
    assert "a latency of 0.01 s (p99) is over latency_seconds 0.002" in original.reason
    assert _front(site, study) == {0}


@pytest.mark.parametrize(
    "limits", [{"latency_seconds": 0.02}, {"min_throughput_ratio": 1.0}], ids=lambda given: [*given]
)
def test_one_that_is_fast_enough_stays_on_it(site: Site, limits: dict[str, float]) -> None:
    """It is its own dense baseline: what its ratio differs from 1 by is chance."""
    study, original = _looked(site, TrialState.COMPLETE, **limits)
    assert original.violation is None
    assert ORIGINAL in _front(site, study)


def test_one_that_waits_is_trained_whatever_its_speed(site: Site) -> None:
    _, original = _looked(site, TrialState.QUEUED, latency_seconds=0.002)
    assert original.state is TrialState.QUEUED
