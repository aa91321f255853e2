"""Machines that are one attempt's alone."""

from collections import Counter

from search.agents.executors import Slot
from search.allocation.seclusion import Seclusion


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def slots(*machines: str) -> list[Slot]:
    return [Slot(f"{name}/cpu-{core}", "cpu", "c", 1.0, name) for name in machines for core in "01"]


def test_an_idle_machine_is_given_at_once_and_is_closed_until_the_attempt_is_over() -> None:
    seclusion = Seclusion()
    chosen = seclusion.choose("s", slots("ada", "bob"), Counter(ada=1))
    assert chosen is not None
    assert chosen.machine == "bob"
    seclusion.begin("bob", "a1")
    assert seclusion.closed() == {"bob"}
    seclusion.keep({"a1", "a2"})
    assert seclusion.closed() == {"bob"}
    seclusion.keep({"a2"})
    assert not seclusion.closed()


def test_a_busy_machine_is_kept_free_until_it_is_empty() -> None:
    seclusion = Seclusion()
    assert seclusion.choose("s", slots("ada", "bob"), Counter(ada=1, bob=2)) is None
    assert seclusion.closed() == {"ada"}
    # The one that was chosen is waited for, though another is as good by now.
    assert seclusion.choose("s", slots("ada", "bob"), Counter(ada=1, bob=1)) is None
    assert seclusion.closed() == {"ada"}
    chosen = seclusion.choose("s", slots("ada", "bob"), Counter(bob=1))
    assert chosen is not None
    assert chosen.machine == "ada"


def test_one_study_waits_for_the_machine_of_another() -> None:
    seclusion = Seclusion()
    assert seclusion.choose("s", slots("ada"), Counter(ada=1)) is None
    assert seclusion.choose("t", slots("ada"), Counter()) is None
    assert seclusion.choose("s", slots("ada"), Counter()) is not None
    seclusion.begin("ada", "a1")
    assert seclusion.choose("t", slots("ada"), Counter(ada=1)) is None


def test_a_machine_is_not_kept_for_a_study_that_asks_no_more() -> None:
    clock = Clock()
    seclusion = Seclusion(clock=clock)
    assert seclusion.choose("s", slots("ada"), Counter(ada=1)) is None
    clock.now = 9.0
    assert seclusion.closed() == {"ada"}
    clock.now = 11.0
    assert not seclusion.closed()
