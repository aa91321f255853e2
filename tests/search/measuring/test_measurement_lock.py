"""The lock between real processes: what it promises is about processes, and about killed ones."""

import multiprocessing
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from search.measuring.measurement_lock import MeasurementLock, is_held_alone

SPAWN = multiprocessing.get_context("spawn")
WORKERS = 4
BATCH_SECONDS = 0.004
PATIENCE_SECONDS = 900


def cycle_batches(
    folder: Path, index: int, batches: Any, inside: Any, most: Any, stop: Any
) -> None:
    """Run batches without a pause, counting who is inside at once."""
    with MeasurementLock(folder) as lock:
        while not stop.is_set():
            with lock.shared():
                batches[index] += 1
                with inside.get_lock():
                    inside.value += 1
                    most.value = max(most.value, inside.value)
                time.sleep(BATCH_SECONDS)
                with inside.get_lock():
                    inside.value -= 1


def hold(folder: Path, way: str, pipe: Connection) -> None:
    """Take the lock, say so, and keep it until a message comes."""
    with MeasurementLock(folder) as lock:
        pipe.send("waits")
        with getattr(lock, way)():
            pipe.send("holds")
            pipe.recv()
        pipe.send(lock.stood_still_seconds)


class Holder:
    def __init__(self, folder: Path, way: str) -> None:
        self.pipe, theirs = SPAWN.Pipe()
        self.process = SPAWN.Process(target=hold, args=(folder, way, theirs), daemon=True)
        self.process.start()
        theirs.close()
        assert self._hears("waits", PATIENCE_SECONDS)

    def holds(self, patience: float = PATIENCE_SECONDS) -> bool:
        return self._hears("holds", patience)

    def let_go(self) -> float:
        self.pipe.send("enough")
        stood_still = self.pipe.recv()
        self.process.join()
        return stood_still

    def kill(self) -> None:
        self.process.kill()
        self.process.join()

    def _hears(self, word: str, patience: float) -> bool:
        return self.pipe.poll(patience) and self.pipe.recv() == word


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "lock"


@pytest.fixture
def crowd(folder: Path) -> Iterator[tuple[Any, Any, Any]]:
    """Four processes that cycle shared locks: their batches, those inside now, the most ever."""
    batches, stop = SPAWN.Array("i", WORKERS), SPAWN.Event()
    inside, most = SPAWN.Value("i", 0), SPAWN.Value("i", 0)
    processes = [
        SPAWN.Process(target=cycle_batches, args=(folder, index, batches, inside, most, stop))
        for index in range(WORKERS)
    ]
    for process in processes:
        process.start()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not all(count > 5 for count in batches) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert all(count > 5 for count in batches)
    yield batches, inside, most
    stop.set()
    for process in processes:
        process.join()


def test_a_measurer_is_let_in_while_four_processes_cycle_batches(
    folder: Path, crowd: tuple[Any, Any, Any]
) -> None:
    batches, inside, most = crowd
    with MeasurementLock(folder) as lock:
        for _ in range(15):
            before = sum(batches)
            with lock.exclusive():
                begun_meanwhile = sum(batches) - before
                assert inside.value == 0
                time.sleep(2 * BATCH_SECONDS)
                assert inside.value == 0
                assert sum(batches) - before == begun_meanwhile
            # The batches underway come to their end, and a few more may slip through the turnstile
            # before the kernel wakes the measurer; without a turnstile there is no bound at all.
            assert begun_meanwhile < 25 * WORKERS
            time.sleep(2 * BATCH_SECONDS)
    assert most.value >= 2


def test_two_measurers_are_never_in_at_once(folder: Path) -> None:
    first = Holder(folder, "exclusive")
    assert first.holds()
    second = Holder(folder, "exclusive")
    assert not second.holds(0.3)
    first.let_go()
    assert second.holds()
    second.let_go()


@pytest.mark.parametrize(
    ("holder", "waiter"),
    [("exclusive", "shared"), ("exclusive", "exclusive"), ("shared", "exclusive")],
)
def test_a_killed_holder_frees_the_lock(folder: Path, holder: str, waiter: str) -> None:
    held = Holder(folder, holder)
    assert held.holds()
    waiting = Holder(folder, waiter)
    assert not waiting.holds(0.3)
    held.kill()
    assert waiting.holds()
    waiting.let_go()


def test_a_killed_measurer_that_waits_for_the_room_frees_the_turnstile(folder: Path) -> None:
    computing = Holder(folder, "shared")
    assert computing.holds()
    measurer = Holder(folder, "exclusive")
    assert not measurer.holds(0.3)
    late = Holder(folder, "shared")
    assert not late.holds(0.3)
    measurer.kill()
    assert late.holds()
    late.let_go()
    computing.let_go()


def test_only_waiting_for_a_measurer_counts_as_standing_still(folder: Path) -> None:
    measurer = Holder(folder, "exclusive")
    assert measurer.holds()
    started = time.monotonic()
    waiting = Holder(folder, "shared")
    assert not waiting.holds(0.3)
    measurer.let_go()
    assert waiting.holds()
    stood_still = waiting.let_go()
    assert 0 < stood_still < time.monotonic() - started

    with MeasurementLock(folder) as lock:
        for _ in range(100):
            with lock.shared():
                pass
        assert lock.stood_still_seconds == 0


def test_an_error_inside_frees_the_lock(folder: Path) -> None:
    with MeasurementLock(folder) as lock, MeasurementLock(folder) as other:
        for way in (lock.shared, lock.exclusive):
            with pytest.raises(ZeroDivisionError), way():
                raise ZeroDivisionError
            with other.exclusive():
                pass


def test_a_look_at_the_lock_tells_a_measurer_from_those_who_share_it(tmp_path: Path) -> None:
    assert not is_held_alone(tmp_path)
    with MeasurementLock(tmp_path) as lock:
        assert not is_held_alone(tmp_path)
        with lock.shared():
            assert not is_held_alone(tmp_path)
        with lock.exclusive():
            assert is_held_alone(tmp_path)
        assert not is_held_alone(tmp_path)
