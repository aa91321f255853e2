"""A child ends with its parent: by the pipe, and when the parent was gone before it looked."""

import os
import signal
import subprocess
import sys

_CHILD = """
import signal, sys, time
from service.processes.lifeline import hold_on
if sys.argv[3] == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
hold_on(int(sys.argv[1]), parent=int(sys.argv[2]), grace_seconds=0.3)
print("holding on", flush=True)
time.sleep(60)
"""


def start(pipe: int, parent: int, manner: str = "obedient") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _CHILD, str(pipe), str(parent), manner],
        pass_fds=(pipe,),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def test_the_end_of_the_pipe_ends_the_child() -> None:
    reading, writing = os.pipe()
    with start(reading, os.getpid()) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "holding on\n"
        assert child.poll() is None
        os.close(writing)
        assert child.wait(200) == -signal.SIGTERM
    os.close(reading)


def test_a_child_that_does_not_stop_in_order_ends_after_the_grace_time() -> None:
    reading, writing = os.pipe()
    with start(reading, os.getpid(), "stubborn") as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "holding on\n"
        os.close(writing)
        assert child.wait(200) == 1
    os.close(reading)


def test_a_parent_that_is_gone_already_ends_the_child_at_once() -> None:
    reading, writing = os.pipe()
    with start(reading, os.getpid() + 1) as child:
        assert child.wait(200) == -signal.SIGTERM
    os.close(reading)
    os.close(writing)
