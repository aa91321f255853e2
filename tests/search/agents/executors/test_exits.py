"""Ends of attempts are waited for in a thread that signals interrupt."""

import signal
import threading
import time
from collections.abc import Generator
from types import FrameType

import pytest

from search.agents.executor import Exit
from search.agents.executors.exits import Exits
from storage.endings import AttemptCause

ENDED = Exit("0123456789abcdef", 0, None, "exited with code 0", AttemptCause.EXITED)


@pytest.fixture
def slow_signals() -> Generator[None]:
    """A signal every 10 ms whose handler takes 3 ms: many a wait's last moment passes in one."""

    def handle(_number: int, _frame: FrameType | None) -> None:
        time.sleep(0.003)

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("slow_signals")
def test_a_wait_ends_whenever_a_signal_comes() -> None:
    """Else a coordinator that is told to end in such a moment would never look at its word."""
    exits = Exits()

    def end_the_wait() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        exits.put(ENDED)

    rescue = threading.Timer(60, end_the_wait)
    rescue.daemon = True
    rescue.start()
    assert [exits.poll(0.0101) for _ in range(100)] == [[]] * 100
    rescue.cancel()


def test_each_end_is_told_once_and_in_order() -> None:
    exits = Exits()
    assert exits.poll(0) == []
    exits.put(ENDED)
    exits.put(ENDED)
    assert exits.poll(60) == [ENDED, ENDED]
    assert exits.poll(0) == []
