import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from search.agents.forking.containment import Containment, contain
from search.errors import ExecutorError
from search.linux import ATTEMPT_SCORE, FORK_SERVER_SCORE
from tests.search.agents.executors.attempts import (
    Scripted,
    children,
    exits,
    said,
    ticket,
    wait_until,
)

MEBIBYTE = 2**20


def score(pid: int) -> int:
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


def server_of(executor: Scripted, attempt_id: str) -> int:
    """The fork server of this attempt that runs; other tests' processes may be about."""
    log = executor.log_path(attempt_id)
    (server,) = (
        server
        for server in children(os.getpid())
        if any(writes_to(log, attempt) for attempt in children(server))
    )
    return server


def writes_to(log: Path, pid: int) -> bool:
    """Whether this process is there and its standard output is this file."""
    try:
        return log.samefile(Path(f"/proc/{pid}/fd/1"))
    except FileNotFoundError:
        return False


@pytest.fixture
def group(tmp_path: Path) -> Path:
    """The files of a control group that is ours, as the kernel shows them; nothing acts on them."""
    files = {
        "cgroup.controllers": "cpu memory pids\n",
        "cgroup.procs": "",
        "cgroup.subtree_control": "",
        "memory.max": "max\n",
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    return tmp_path


def test_an_attempt_is_killed_before_its_server_and_that_before_the_coordinator(
    tmp_path: Path,
) -> None:
    executor = Scripted(tmp_path)
    try:
        executor.start(ticket("stand_up"))
        wait_until(lambda: said(executor, "a1") == ["ready"])
        server = server_of(executor, "a1")
        (attempt,) = children(server)
        assert score(attempt) == max(ATTEMPT_SCORE, score(os.getpid()))
        assert score(server) == max(FORK_SERVER_SCORE, score(os.getpid()))
        assert score(os.getpid()) < score(server) < score(attempt)
    finally:
        executor.close()


def test_a_limit_refuses_memory_beyond_the_slots(tmp_path: Path) -> None:
    """What the server has already is not counted: a second attempt gets as much."""
    held = Containment(kind="rlimit")
    executor = Scripted(tmp_path, containment=held)
    try:
        for name in ("a1", "a2"):
            asked = replace(ticket("take_until_refused", name), memory=256 * MEBIBYTE)
            executor.start(asked)
            (ended,) = exits(executor, 1)
            assert ended.returncode == 0
            (taken,) = map(int, said(executor, name))
            assert 128 <= taken <= 256
    finally:
        executor.close()


@pytest.mark.parametrize("memory", [None, 256 * MEBIBYTE])
def test_a_gpu_has_no_limit_on_what_its_driver_maps(memory: int | None) -> None:
    held = Containment(kind="rlimit")
    for one in (ticket("wait"), replace(ticket("wait", device="cuda:GPU-7"), memory=memory)):
        # Entering it here would bind the tests themselves.
        held.bounds(one).enter()
        held.bounds(one).close()


def test_a_group_that_was_given_to_us_is_divided(group: Path) -> None:
    assert contain("auto", root=group, membership="/") == Containment(kind="cgroup", group=group)
    assert (group / "cgroup.subtree_control").read_text() == "+memory"
    again = contain("cgroup", root=group, membership="/reflectory")
    assert again == Containment(kind="cgroup", group=group)


def test_what_others_left_behind_is_removed(group: Path) -> None:
    dead, alive = group / "attempt-999999999-a1", group / f"attempt-{os.getpid()}-a1"
    dead.mkdir()
    alive.mkdir()
    contain("cgroup", root=group, membership="/")
    assert alive.exists()
    assert not dead.exists()


def test_a_group_of_others_is_left_alone(group: Path) -> None:
    """As of a login: nobody gave it away, and other processes than ours are in it."""
    inner = group / "session-3.scope"
    inner.mkdir()
    for name in ("cgroup.controllers", "cgroup.subtree_control", "memory.max"):
        (inner / name).write_text((group / name).read_text())
    (inner / "cgroup.procs").write_text(f"{os.getpid()}\n")
    assert contain("auto", root=group, membership="/session-3.scope").kind == "rlimit"
    assert not (inner / "reflectory").exists()
    with pytest.raises(ExecutorError, match="not handed over"):
        contain("cgroup", root=group, membership="/session-3.scope")


def test_processes_of_others_are_not_moved(group: Path) -> None:
    stranger = os.posix_spawn("/bin/sleep", ["sleep", "600"], os.environ, setsid=True)
    try:
        wait_until(lambda: "sleep" in os.readlink(f"/proc/{stranger}/exe"))
        # One of ours, however it came here.
        (group / "cgroup.procs").write_text(f"{stranger}\n")
        (group / "reflectory").mkdir()
        (group / "reflectory" / "cgroup.procs").write_text("")
        with pytest.raises(ExecutorError, match="never without processes"):
            contain("cgroup", root=group, membership="/")
    finally:
        os.kill(stranger, signal.SIGKILL)
        os.waitpid(stranger, 0)
    # One of somebody else.
    (group / "cgroup.procs").write_text("999999999\n")
    with pytest.raises(ExecutorError, match=r"other processes than ours: \[999999999\]"):
        contain("cgroup", root=group, membership="/")
    assert contain("auto", root=group, membership="/").kind == "rlimit"


@pytest.mark.parametrize("missing", ["memory.max", "cgroup.subtree_control"])
def test_without_a_memory_controller_there_is_a_limit(group: Path, missing: str) -> None:
    (group / missing).unlink()
    assert contain("auto", root=group, membership="/").kind == "rlimit"
    with pytest.raises(ExecutorError, match="attempts get no control groups"):
        contain("cgroup", root=group, membership="/")


def test_a_machine_without_groups_says_so(tmp_path: Path) -> None:
    assert contain("auto", root=tmp_path, membership="/").kind == "rlimit"
    assert contain("none") == Containment(kind="none")


@pytest.fixture
def delegated() -> Iterator[Containment]:
    """Real groups, where this machine gives us a part of them."""
    try:
        yield contain("cgroup")
    except ExecutorError as error:
        pytest.skip(str(error))


def test_the_kernel_ends_what_goes_over_its_groups_limit_and_says_whose_it_was(
    tmp_path: Path, delegated: Containment
) -> None:
    assert delegated.group is not None
    executor = Scripted(tmp_path, containment=delegated)
    try:
        executor.start(ticket("stand_up", "a0"))
        asked = replace(ticket("take_what_there_is"), memory=128 * MEBIBYTE)
        executor.start(asked)
        (ended,) = exits(executor, 1)
        assert ended.attempt_id == "a1"
        assert ended.detail == "out of memory: the kernel ended it at its limit of 0.134 GB"
        executor.cancel("a0", 600.0)
        (ended,) = exits(executor, 1)
        assert (ended.attempt_id, ended.returncode) == ("a0", 143)
        executor.start(ticket("wait", "a2"))
        (attempt,) = children(server_of(executor, "a2"))
        os.kill(attempt, signal.SIGKILL)
        (ended,) = exits(executor, 1)
        assert ended.detail == "killed by signal 9 (Killed)"
        assert not list(delegated.group.glob("attempt-*"))
    finally:
        executor.close()
