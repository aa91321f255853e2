"""A study whose machines go away: it keeps running, and says what it waits for."""

import time
from collections.abc import Callable

from storage.records import StudyRecord, StudyState
from storage.repositories.events import Events
from storage.repositories.studies import Studies
from tests.search.dispatch.test_fractions import CORE, Machine, coordinator
from tests.service.site import Site


def test_a_running_study_says_that_it_waits_until_a_machine_is_back(site: Site) -> None:
    machine = Machine([CORE])
    study_id = site.study(resources={"device": "cpu"}).id
    running = coordinator(site, machine)

    def found() -> StudyRecord:
        with site.database.read() as session:
            return Studies(session).get(study_id)

    def rounds(until: Callable[[], bool]) -> StudyRecord:
        deadline = time.monotonic() + 60
        while not until():
            running.round()
            assert time.monotonic() < deadline, found().state_reason
        return found()

    study = rounds(lambda: bool(machine.begun))
    assert (study.state, study.state_reason) == (StudyState.RUNNING, None)

    machine.slots = ()
    study = rounds(lambda: found().state_reason is not None)
    assert study.state is StudyState.RUNNING
    assert study.state_reason == "waits for a slot: resources.device 'cpu'"

    machine.slots = (CORE,)
    study = rounds(lambda: found().state_reason is None)
    assert study.state is StudyState.RUNNING

    with site.database.read() as session:
        said = [event.payload["reason"] for event in Events(session).of_kind(study_id, "study")]
    assert said.count("waits for a slot: resources.device 'cpu'") == 1
    # The next coordinator would go on with it.
    site.finish(study)
