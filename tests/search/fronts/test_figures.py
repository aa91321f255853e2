"""Figures of studies: right, computed once per version, and never of another version."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from search.fronts import figures as module
from search.fronts.figures import Figures
from search.fronts.pareto import Front
from storage.records import StudyRecord, TrialState
from storage.repositories.studies import Studies
from tests.service.site import Site


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The studies whose front was computed, in turn; computing takes a moment."""
    found: list[str] = []
    compute = module.pareto.front

    def noted(session: Any, study: StudyRecord, **given: Any) -> Front:
        found.append(study.id)
        time.sleep(0.05)
        return compute(session, study, **given)

    monkeypatch.setattr(module.pareto, "front", noted)
    return found


def front(site: Site, figures: Figures, study: StudyRecord) -> list[int]:
    with site.database.read() as session:
        found = figures.front(session, Studies(session).get(study.id))
        return [point.trial for point in found.points]


def volume(site: Site, figures: Figures, study: StudyRecord) -> float | None:
    with site.database.read() as session:
        now = Studies(session).get(study.id)
        standing, whole = figures.standing(session, now), figures.front(session, now)
    assert [trial.number for trial in standing.front] == [point.trial for point in whole.points]
    assert standing.hypervolume == whole.hypervolume
    return standing.hypervolume


def set_reference(site: Site, study: StudyRecord) -> None:
    point = {"quality": 0.1, "parameters": 10_000.0, "throughput": 1.0}
    with site.database.write() as session:
        Studies(session).set_reference_point(study.id, point)


def test_a_front_is_computed_once_until_something_changes(site: Site, computed: list[str]) -> None:
    study, other, figures = site.study(), site.study(), Figures()
    site.trial(study, 0, quality=0.5, throughput=100.0)
    assert front(site, figures, study) == front(site, figures, study) == [0]
    assert computed == [study.id]
    assert front(site, figures, other) == []
    site.trial(study, 1, quality=0.9, throughput=200.0, parameters=1)
    assert front(site, figures, study) == [1]
    site.trial(study, 2, state=TrialState.QUEUED)
    assert front(site, figures, study) == [1]
    assert computed == [study.id, other.id, study.id]


def test_the_standing_is_that_of_the_whole_front(site: Site) -> None:
    study, figures = site.study(), Figures()
    assert volume(site, figures, study) is None
    set_reference(site, study)
    assert volume(site, figures, study) == 0.0
    site.trial(study, 0, quality=0.5, throughput=100.0)
    first = volume(site, figures, study)
    site.trial(study, 1, quality=0.4, throughput=50.0, parameters=9_000)
    assert first == volume(site, figures, study)
    site.trial(study, 2, quality=0.9, throughput=100.0, parameters=500)
    second = volume(site, figures, study)
    assert first is not None
    assert second is not None
    assert second > first > 0


def test_what_several_ask_for_at_once_is_computed_once(site: Site, computed: list[str]) -> None:
    study, figures, together = site.study(), Figures(), threading.Barrier(4)
    site.trial(study, 0, quality=0.5, throughput=100.0)

    def ask(_: int) -> list[int]:
        together.wait()
        return front(site, figures, study)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, range(4))) == [[0]] * 4
    assert computed == [study.id]


def test_a_failure_is_told_to_all_and_not_kept(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    study, figures = site.study(), Figures()

    def fail(*_: Any, **__: Any) -> Front:
        raise RuntimeError("no room")

    with monkeypatch.context() as patched:
        patched.setattr(module.pareto, "front", fail)
        with pytest.raises(RuntimeError, match="no room"):
            front(site, figures, study)
    assert front(site, figures, study) == []


def test_no_more_is_kept_than_there_is_room_for(site: Site, computed: list[str]) -> None:
    studies, figures = [site.study() for _ in range(3)], Figures(size=2)
    for study in (*studies, studies[2], studies[1], studies[0]):
        front(site, figures, study)
    assert computed == [study.id for study in (*studies, studies[0])]
