"""Counters that processes share: together as exact as alone, bounded, and forgotten in time."""

import multiprocessing
from pathlib import Path

import pytest

from service.auth import shared_counters
from service.auth.shared_counters import SharedCounters


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which a test moves on."""
    at = [6000.0]
    monkeypatch.setattr(shared_counters.time, "time", lambda: at[0])
    return at


def test_one_too_many_in_a_minute_waits(clock: list[float]) -> None:
    counters = SharedCounters()
    assert [counters.hit("a", limit=3) for _ in range(3)] == [None] * 3
    assert counters.hit("a", limit=3) == 60.0
    assert counters.hit("b", limit=3) is None
    assert (counters.used("a"), counters.used("b"), counters.used("c")) == (3, 1, 0)
    # Half of the next minute has passed: half of the three still count.
    clock[0] += 90
    assert counters.used("a") == 1
    assert [counters.hit("a", limit=3) for _ in range(2)] == [None, None]
    assert counters.hit("a", limit=3) is not None
    clock[0] += 120
    assert counters.used("a") == 0
    assert counters.hit("a", limit=1) is None


def test_who_comes_under_ever_other_names_takes_no_more_room(clock: list[float]) -> None:
    counters = SharedCounters()
    for _ in range(50):
        counters.hit("busy", limit=1000)
    for number in range(shared_counters._BUCKETS * shared_counters._IN_A_BUCKET):
        counters.hit("other", str(number), limit=1000)
    # Those that count least are pushed out first.
    assert counters.used("busy") == 50
    assert clock


def hits(file: Path, count: int, start: object, found: "multiprocessing.Queue[int]") -> None:
    counters = SharedCounters(file)
    start.wait()  # type: ignore[attr-defined]
    found.put(sum(counters.hit("a", limit=1000) is None for _ in range(count)))


def test_processes_count_together_and_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    start, found = context.Event(), context.Queue()
    file = tmp_path / "counters"
    processes = [context.Process(target=hits, args=(file, 800, start, found)) for _ in range(3)]
    for process in processes:
        process.start()
    start.set()
    let_in = [found.get(timeout=300) for _ in processes]
    for process in processes:
        process.join()
    # Of 2,400 a thousand; where a minute of the clock ends meanwhile, what is let in is estimated.
    assert 1000 <= sum(let_in) <= 2000
    assert SharedCounters(file).used("a") <= 1000
