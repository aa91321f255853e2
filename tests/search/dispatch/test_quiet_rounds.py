"""A coordinator for which nothing is new reads no rows, and writes none."""

import time
from collections.abc import Callable, Sequence
from datetime import datetime

import pytest

from search.agents.executors import Slot
from search.dispatch import coordinator as coordinator_module
from search.dispatch.coordinator import Coordinator
from storage.fleet.coordinators import Coordinators
from tests.search.dispatch.test_fractions import CORE, Machine, coordinator
from tests.service.site import Site

_DAY = 86_400.0


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is done each second is done a hundred times as often."""
    monkeypatch.setattr(coordinator_module, "_KEEP_SECONDS", 0.01)


class Watched(Machine):
    """Counts how often it is looked for."""

    looks = 0

    def capacity(self) -> Sequence[Slot]:
        self.looks += 1
        return super().capacity()


def seen_at(site: Site) -> datetime:
    with site.database.read() as session:
        found = Coordinators(session).find("test")
    assert found is not None
    return found.seen_at


def rounds(running: Coordinator, until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not until():
        running.round()
        assert time.monotonic() < deadline


@pytest.mark.usefixtures("often")
def test_rows_are_read_when_any_was_written(site: Site) -> None:
    machine = Watched([CORE])
    # Nothing falls due by the clock.
    running = coordinator(site, machine, lease_seconds=_DAY)
    for _ in range(5):
        running.round()
    looks, seen = machine.looks, seen_at(site)
    for _ in range(10):
        running.round()
    assert (machine.looks, seen_at(site)) == (looks, seen)

    study = site.study()
    rounds(running, lambda: bool(machine.begun))
    assert machine.looks > looks
    site.finish(study)


@pytest.mark.usefixtures("often")
def test_machines_that_write_nothing_are_looked_for_now_and_then(site: Site) -> None:
    machine = Watched([CORE])
    running = coordinator(site, machine, lease_seconds=0.4)
    running.round()
    looks, seen = machine.looks, seen_at(site)
    rounds(running, lambda: machine.looks > looks + 3)
    rounds(running, lambda: seen_at(site) > seen)
