"""A study that meets an error which nobody foresaw stops no other one, and loses nothing."""

from collections.abc import Generator

import pytest

from search.dispatch.faulty_studies import FaultyStudies
from storage.records import TrialState
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials
from tests.search.coordinating import Site
from tests.search.dispatch.test_crash_points import SPEC
from tests.service.running import wait_until


@pytest.fixture
def started(tmp_path_factory: pytest.TempPathFactory) -> Generator[Site]:
    made = Site(tmp_path_factory.mktemp("faulty"))
    yield made
    made.close()


def test_a_study_whose_sampler_raises_stops_no_other_and_goes_on_later(started: Site) -> None:
    site = started

    def submit(name: str) -> str:
        return site.http.post("/v1/studies", json={**SPEC, "name": name}).json()["id"]

    def has_ended(study_id: str) -> bool:
        with site.database.read() as session:
            return Studies(session).get(study_id).state.has_ended

    faulty = submit("stuck")
    coordinator = site.coordinate("faulty", 2)
    wait_until(lambda: "nobody foresaw" in site.log.read_text(), what="the error")
    other = submit("another")
    wait_until(lambda: has_ended(other), what="the end of the other study")
    assert not has_ended(faulty)
    (site.folder / "released").touch()
    wait_until(lambda: has_ended(faulty), what="the end of the study that met an error")
    assert coordinator.poll() is None
    coordinator.terminate()
    coordinator.wait(timeout=200)
    with site.database.read() as session:
        trials = Trials(session).list(faulty)
        likewise = Trials(session).list(other)
    assert {trial.state for trial in trials} == {TrialState.COMPLETE}
    assert [trial.drawn for trial in trials] == [trial.drawn for trial in likewise]


def test_each_error_has_a_study_left_alone_for_twice_as_long() -> None:
    now = 100.0
    faulty = FaultyStudies(clock=lambda: now)
    assert not faulty.is_left_alone("a")
    waited: list[float] = []
    for _ in range(12):
        waited.append(faulty.note("a"))
        now += waited[-1] - 0.5
        assert faulty.is_left_alone("a")
        now += 1
        assert not faulty.is_left_alone("a")
    assert waited == [*(2.0**power for power in range(10)), 600, 600]
    assert faulty.note("b") == 1
    now += 1300
    assert faulty.note("a") == 1
    faulty.note("a")
    faulty.forget("a")
    assert faulty.note("a") == 1
