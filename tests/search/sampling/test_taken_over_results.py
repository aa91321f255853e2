"""Repeats that take over an earlier result: all that is known of it, and only while they wait."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from search.fronts import Figures
from search.running import ClaimedDatabase, KnownTrials, StudyContext, end_trial
from search.sampling.duplicates import Duplicates
from search.studies.spec import StudySpec
from storage.endings import TrialCause
from storage.records import StudyRecord, TrialOutcome, TrialState
from storage.repositories.measurements import Measurements
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials
from tests.service.site import Site, now
from tests.storage.records import measurement

TOO_SLOW = TrialOutcome(cause=TrialCause.LIMIT, detail="too slow", violation=0.4)


@pytest.fixture
def study(site: Site) -> StudyRecord:
    """Trial 0 is complete and known to the sampler; trial 1 repeats it, and waits."""
    limits = {"min_throughput_ratio": 1.0}
    made = site.study(
        objectives=["quality", "parameters"], limits=limits, sampler={"kind": "random"}
    )
    site.run(made)
    site.trial(made, 0, quality=0.9, parameters=500)
    with site.database.write() as session:
        trials = Trials(session)
        trials.mark_told(made.id, 0, now())
        first = trials.get(made.id, 0)
        again = replace(
            first,
            number=1,
            state=TrialState.QUEUED,
            repeats=0,
            artifacts={},
            quality=None,
            started_at=None,
            finished_at=None,
            told_at=None,
            dispatched=False,
        )
        trials.add(again)
        Studies(session).claim(made.id, owner="me", now=now(), until=now())
    return made


def _duplicates(site: Site, study: StudyRecord) -> Duplicates:
    known = KnownTrials(site.database, study.id)
    context = SimpleNamespace(
        id=study.id,
        database=ClaimedDatabase(site.database, study.id, owner="me", wrote=known.note_write),
        spec=StudySpec.model_validate(study.spec),
        trials=known,
    )
    return Duplicates(cast(StudyContext, cast(Any, context)))


def _front(site: Site, study: StudyRecord) -> list[int]:
    with site.database.read() as session:
        found = Figures().front(session, Studies(session).get(study.id))
        return [point.trial for point in found.points]


def test_a_result_that_broke_a_limit_breaks_it_for_its_repeats(
    site: Site, study: StudyRecord
) -> None:
    with site.database.write() as session:
        first = Trials(session).get(study.id, 0)
        slow = measurement(
            study.id, id="m", trial=0, shape_key=first.shape_key, device="cpu", ratio=0.6
        )
        Measurements(session).add(study.id, slow)
        Trials(session).share_throughput(study.id, slow)
        Trials(session).note_violation(study.id, 0, TOO_SLOW)
    ended = _duplicates(site, study).reuse()
    assert ended is not None
    assert (ended.number, ended.state, ended.violation) == (1, TrialState.COMPLETE, 0.4)
    assert ended.quality == 0.9
    assert _front(site, study) == []


def test_a_repeat_that_was_cancelled_meanwhile_stays_so(
    site: Site, study: StudyRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    duplicates = _duplicates(site, study)
    listed = Trials.alike

    def cancelled_then(self: Trials, *args: Any) -> Any:
        """The repeats have been read; what they repeat is about to be."""
        with site.database.write() as session:
            outcome = TrialOutcome(cause=TrialCause.CANCELLED)
            end_trial(session, study.id, 1, state=TrialState.CANCELLED, outcome=outcome)
        return listed(self, *args)

    monkeypatch.setattr(Trials, "alike", cancelled_then)
    assert duplicates.reuse() is None
    with site.database.read() as session:
        assert Trials(session).get(study.id, 1).state is TrialState.CANCELLED
