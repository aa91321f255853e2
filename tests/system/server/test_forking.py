"""Processes that are forked: what they inherit, how they end, and what keeps them running."""

import subprocess
import sys
from pathlib import Path

import pytest

_BEGINNING = """
import os, signal, socket, sys, time
from pathlib import Path
from service.processes.children import Child, ChildGivenUp
from service.processes.forking import Forked, ForkRefused, ForkRequests, fork
"""


def run(program: str, *arguments: object, code: int = 0) -> str:
    """What a program prints; it runs in a process of its own, for only one thread may fork."""
    ended = subprocess.run(
        [sys.executable, "-c", _BEGINNING + program, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ended.returncode == code, ended.stderr
    return ended.stdout + ended.stderr


def test_the_end_of_a_fork_is_known() -> None:
    said = run(
        """
def fails(): raise ValueError("on purpose")
def prints(): print("unflushed", end="")
ends = [lambda: None, lambda: sys.exit(7), lambda: sys.exit("in words"), fails, prints]
print([fork("role", end).wait() for end in ends])
sleeping = fork("role", lambda: time.sleep(600))
print(sleeping.poll(), sleeping.wait(0.01))
sleeping.send_signal(signal.SIGTERM)
print(sleeping.wait(), sleeping.poll())
sleeping.send_signal(signal.SIGTERM)
"""
    )
    assert "[0, 7, 1, 1, 0]" in said
    assert "None None\n-15 -15\n" in said
    assert "unflushed" in said
    assert "in words" in said
    assert "ValueError: on purpose" in said


def test_a_fork_has_a_title_a_group_and_the_files_that_it_was_given(tmp_path: Path) -> None:
    said = run(
        """
signal.signal(signal.SIGTERM, lambda *_: print("never"))
kept, other = (open(Path(sys.argv[1]) / name, "w") for name in "ab")
def look():
    links = {os.readlink(f"/proc/self/fd/{name}") for name in (0, kept.fileno())}
    names = os.listdir("/proc/self/fd")
    there = [name for name in names if os.path.exists(f"/proc/self/fd/{name}")]
    print(sorted(links), len(there), os.getpgid(0) == os.getpid(), flush=True)
    print(Path("/proc/self/cmdline").read_bytes(), flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
print(fork("a-role", look, keep=[kept.fileno()]).wait())
""",
        tmp_path,
    )
    assert f"['/dev/null', '{tmp_path}/a'] 4 True" in said
    assert "b'reflectory a-role" in said
    assert said.endswith("-15\n")


def test_who_has_two_threads_does_not_fork() -> None:
    said = run(
        """
import threading
threading.Thread(target=time.sleep, args=[600], daemon=True).start()
try:
    fork("role", lambda: None)
except ForkRefused as error:
    print(error)
"""
    )
    assert "2 threads where 1 is allowed" in said


def test_variables_that_are_forgotten_cannot_be_read_anywhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HIDDEN", "unseen")
    monkeypatch.setenv("HIDDEN_NOT", "shown")
    said = run(
        """
from search.linux import forget_environment
os.environ["GIVEN_LATER"] = "unseen"

def look():
    forget_environment(["HIDDEN", "GIVEN_LATER", "NEVER_GIVEN"])
    shown = Path("/proc/self/environ").read_bytes()
    print(b"unseen" in shown, b"HIDDEN_NOT=shown" in shown, os.getenv("HIDDEN"), flush=True)
    os.execvp("env", ["env"])

fork("role", look).wait()
"""
    )
    assert said.startswith("False True None\n")
    assert "unseen" not in said
    assert "HIDDEN_NOT=shown" in said


_ASKING = """
from multiprocessing import Pipe
from search.linux import thread_count

def program(pipe):
    print("forked, with", thread_count(), "thread")
    pipe.send(os.getppid())
    try:
        pipe.recv()
    except EOFError:
        print("the pipe ended")

requests = ForkRequests({"some.program": program})
errors = Path(sys.argv[1])

def until_ended(child):
    while child.poll() is None:
        requests.tend()
        time.sleep(0.01)
"""


def test_a_child_has_a_program_forked_by_its_parent(tmp_path: Path) -> None:
    errors = tmp_path / "errors.log"
    said = run(
        _ASKING
        + """
def asks():
    ours, theirs = Pipe()
    launched = requests.launch("some.program", theirs, errors)
    theirs.close()
    print("parent's", ours.recv() == os.getppid())
    launched.send_signal(signal.SIGKILL)
    launched.wait()
    launched.send_signal(signal.SIGKILL)
    again, theirs = Pipe()
    with again:
        requests.launch("some.program", theirs, errors)
        theirs.close()
        again.recv()
until_ended(fork("asks", asks, keep=[requests.descriptor]))
while requests.waits_on()[1:]:
    requests.tend()
""",
        errors,
    )
    assert "parent's True" in said
    assert errors.read_text().count("forked, with 1 thread") == 2
    assert errors.read_text().count("the pipe ended") == 1


def test_what_nobody_forks_is_an_error_of_who_asked(tmp_path: Path) -> None:
    said = run(
        _ASKING
        + """
import service.processes.forking as forking
forking._ASK_SECONDS = 0.2
def asks():
    ours, theirs = Pipe()
    try:
        requests.launch("some.program", theirs, errors)
    except OSError as error:
        print(type(error).__name__)
child = fork("asks", asks, keep=[requests.descriptor])
child.wait()
requests.tend()
print("and late", [one for one in requests.waits_on()[1:]] != [])
requests.end_now()
""",
        tmp_path / "errors.log",
    )
    assert "TimeoutError\nand late True" in said


def test_a_child_that_cannot_live_is_given_up_loudly() -> None:
    said = run(
        """
hopeless = Child("hopeless", lambda: sys.exit(2))
try:
    while True:
        hopeless.tend()
        time.sleep(0.01)
except ChildGivenUp as error:
    print(error)
"""
    )
    assert "`hopeless` ended 6 times in a row soon after its start, at last with status 2" in said


def test_a_child_for_visitors_starts_with_the_first_and_again_with_the_next(tmp_path: Path) -> None:
    said = run(
        """
from multiprocessing.connection import wait
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()

def answer_once():
    connection, _ = listener.accept()
    connection.sendall(b"%d" % os.getpid())
    connection.close()

child = Child("visited", answer_once, keep=[listener.fileno()], visits=listener)
child.tend()
print(child.pid, child.seconds())
pids = set()
for _ in range(3):
    with socket.socket(socket.AF_UNIX) as visitor:
        visitor.connect(sys.argv[1])
        wait(child.waits_on())
        child.tend()
        pids.add(int(visitor.recv(100)))
    wait(child.waits_on())
    child.tend()
    print(child.pid)
print(len(pids))
""",
        tmp_path / "s",
    )
    assert said == "None None\nNone\nNone\nNone\n3\n"


def test_computing_in_several_threads_works_after_the_fork() -> None:
    """torch's own pool and OpenMP's, with one thread each while the parent imports."""
    said = run(
        """
from search.agents.forking.environment import PRELOAD
os.environ.update(PRELOAD)
import numpy as np, torch, threadpoolctl
from service.processes import roles
from search.linux import thread_count

def compute():
    a = torch.arange(400 * 400, dtype=torch.float32).reshape(400, 400).remainder(7)
    alone = (a @ a, (a + 1).sum(0), torch.sin(a))
    before = thread_count()
    torch.set_num_threads(3)
    together = (a @ a, (a + 1).sum(0), torch.sin(a))
    print(torch.get_num_threads(), thread_count() > before)
    print([torch.allclose(one, other) for one, other in zip(alone, together)])
    with threadpoolctl.threadpool_limits(2):
        product = a.numpy() @ a.numpy()
    print(np.allclose(product, alone[0].numpy()))

print(torch.get_num_threads(), thread_count())
print([fork("role", compute).wait() for _ in range(2)])
"""
    )
    assert said.startswith("1 1\n")
    assert said.count("3 True\n[True, True, True]\nTrue\n") == 2
    assert said.endswith("[0, 0]\n")
