"""Threads between tenants: whoever has the fewest at work is next, and long work gives way."""

import threading
from collections.abc import Callable, Generator
from concurrent.futures import CancelledError, wait

import pytest

from search.dispatch.fair_threads import FairThreads

PATIENCE = 900.0


@pytest.fixture
def one() -> Generator[FairThreads]:
    """A single thread, so that there is an order."""
    threads = FairThreads(1, name="test", weight=lambda _tenant: 1.0)
    yield threads
    threads.shutdown()


class Held:
    """Work that waits for a word."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()

    def __call__(self) -> bool:
        self.begun.set()
        assert self.go_on.wait(PATIENCE)
        return False


def noting(done: list[str], name: str) -> Callable[[], bool]:
    def work() -> bool:
        done.append(name)
        return False

    return work


def test_one_tenant_is_served_in_the_order_in_which_it_asked(one: FairThreads) -> None:
    first, done = Held(), list[str]()
    futures = [one.submit("a", first)]
    futures += [one.submit("a", noting(done, str(number))) for number in range(20)]
    assert first.begun.wait(PATIENCE)
    assert not one.should_give_way("a"), "nobody else waits"
    first.go_on.set()
    wait(futures, PATIENCE)
    assert done == [str(number) for number in range(20)]


def test_another_tenants_work_does_not_wait_for_all_of_the_first_ones(one: FairThreads) -> None:
    first, done = Held(), list[str]()
    futures = [one.submit("a", first)]
    assert first.begun.wait(PATIENCE)
    futures += [one.submit("a", noting(done, f"a{number}")) for number in range(5)]
    futures += [one.submit("b", noting(done, f"b{number}")) for number in range(2)]
    first.go_on.set()
    wait(futures, PATIENCE)
    assert done == ["a0", "b0", "a1", "b1", "a2", "a3", "a4"]


def test_long_work_gives_way_after_each_of_its_steps_and_goes_on(one: FairThreads) -> None:
    done: list[str] = []
    begun, go_on = threading.Event(), threading.Event()

    def long() -> bool:
        while len([name for name in done if name == "step"]) < 100:
            done.append("step")
            begun.set()
            assert go_on.wait(PATIENCE)
            if one.should_give_way("a"):
                return True
        return False

    lasting = one.submit("a", long)
    assert begun.wait(PATIENCE)
    quick = one.submit("b", noting(done, "b"))
    go_on.set()
    quick.result(PATIENCE)
    assert done[:2] == ["step", "b"]
    lasting.result(PATIENCE)
    assert done.count("step") == 100


def test_weights_count(one: FairThreads) -> None:
    threads = FairThreads(4, name="test", weight=lambda tenant: 3.0 if tenant == "a" else 1.0)
    works = {tenant: [Held() for _ in range(6)] for tenant in "ab"}
    first = [Held() for _ in range(4)]
    futures = [threads.submit("c", work) for work in first]
    assert all(work.begun.wait(PATIENCE) for work in first)
    futures += [threads.submit(tenant, work) for tenant in "ab" for work in works[tenant]]
    for work in first:
        work.go_on.set()
    begun = [work for own in works.values() for work in own]
    while sum(work.begun.is_set() for work in begun) < 4:
        assert not futures[-1].done()
        threading.Event().wait(0.005)
    assert [sum(work.begun.is_set() for work in works[tenant]) for tenant in "ab"] == [3, 1]
    for work in begun:
        work.go_on.set()
    wait(futures, PATIENCE)
    threads.shutdown()


def test_what_went_wrong_is_told_and_takes_no_thread_away(one: FairThreads) -> None:
    def fail() -> bool:
        raise ValueError("went wrong")

    for _ in range(3):
        with pytest.raises(ValueError, match="went wrong"):
            one.submit("a", fail).result(PATIENCE)
    one.submit("a", lambda: False).result(PATIENCE)


def test_a_shutdown_leaves_nobody_waiting() -> None:
    threads = FairThreads(1, name="test", weight=lambda _tenant: 1.0)
    first = Held()
    at_work = threads.submit("a", first)
    assert first.begun.wait(PATIENCE)
    waiting = [threads.submit(tenant, lambda: False) for tenant in "ab"]
    closing = threading.Thread(target=threads.shutdown)
    closing.start()
    first.go_on.set()
    closing.join(PATIENCE)
    assert not closing.is_alive()
    at_work.result(0)
    for future in waiting:
        with pytest.raises(CancelledError):
            future.result(0)


def test_work_that_gave_way_ends_with_the_shutdown() -> None:
    threads = FairThreads(1, name="test", weight=lambda _tenant: 1.0)
    begun, closed = threading.Event(), threading.Event()

    def give_way() -> bool:
        begun.set()
        assert closed.wait(PATIENCE)
        return True

    lasting = threads.submit("a", give_way)
    assert begun.wait(PATIENCE)
    closing = threading.Thread(target=threads.shutdown)
    closing.start()
    while not threads._closed:  # pyright: ignore[reportPrivateUsage]
        threading.Event().wait(0.005)
    closed.set()
    closing.join(PATIENCE)
    lasting.result(0)
