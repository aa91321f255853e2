"""A sampler that takes its time keeps nobody waiting, and suggests what a quick one would."""

from collections.abc import Generator

import pytest

from storage.records import TrialState
from storage.repositories.exchanges import Exchanges
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials
from tests.search.coordinating import Site, finish
from tests.search.dispatch.test_crash_points import SPEC
from tests.service.running import wait_until


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Generator[Site]:
    made = Site(tmp_path_factory.mktemp("exchange"))
    yield made
    made.close()


def submit(site: Site, name: str) -> str:
    return site.http.post("/v1/studies", json={**SPEC, "name": name}).json()["id"]


def complete(site: Site, study_id: str) -> int:
    with site.database.read() as session:
        return Trials(session).counts(study_id).by_state.get(TrialState.COMPLETE, 0)


def has_ended(site: Site, study_id: str) -> bool:
    with site.database.read() as session:
        return Studies(session).get(study_id).state.has_ended


def exchanged(site: Site, study_id: str) -> tuple[list[object], list[object]]:
    """What was suggested, and the order of asks and tells."""
    with site.database.read() as session:
        drawn: list[object] = [trial.drawn for trial in Trials(session).list(study_id)]
        return drawn, [(row.kind, row.trial) for row in Exchanges(session).list(study_id)]


def test_slots_are_filled_while_a_sampler_thinks(site: Site) -> None:
    stuck = submit(site, "stuck")
    # Its third suggestion does not come before the other study has ended.
    coordinator = site.coordinate("slow", 2)
    wait_until(lambda: complete(site, stuck) == 2, what="the two trials that were suggested")
    quick = submit(site, "quick")
    wait_until(lambda: has_ended(site, quick), what="the other study's end")
    assert complete(site, stuck) == 2
    (site.folder / "released").touch()
    wait_until(lambda: has_ended(site, stuck), what="the end of the study that was stuck")
    coordinator.terminate()
    coordinator.wait(timeout=200)
    assert exchanged(site, stuck) == exchanged(site, quick)


def test_a_slow_sampler_suggests_what_a_quick_one_does(site: Site) -> None:
    thought = submit(site, "thought over")
    coordinator = site.coordinate("slow", 0)
    wait_until(lambda: has_ended(site, thought), what="the study's end")
    coordinator.terminate()
    coordinator.wait(timeout=200)
    at_once = submit(site, "at once")
    finish(site, at_once)
    assert exchanged(site, thought) == exchanged(site, at_once)
