import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path

import pytest

from search.agents.forking.containment import Containment
from search.agents.forking.frames import StartAttempt
from search.agents.forking.loop import serve
from search.agents.forking.server_process import ServerProcess, by_exec
from search.errors import ExecutorError
from tests.search.agents.executors.attempts import (
    SCRIPTED,
    Scripted,
    alive,
    children,
    descendants,
    exits,
    said,
    ticket,
    wait_until,
)


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[Scripted]:
    executor = Scripted(tmp_path / "logs")
    yield executor
    executor.close()


@pytest.fixture
def small_memory() -> Iterator[Path]:
    """A control group with 64 MiB, where this machine lets us make one."""
    memberships = (line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().split())
    paths = {controllers: path.strip("/") for _, controllers, path in memberships}
    root = Path("/sys/fs/cgroup")
    older, newer = root / "memory" / paths.get("memory", ""), root / paths.get("", "")
    base, limit = (older, "memory.limit_in_bytes") if "memory" in paths else (newer, "memory.max")
    group = base / f"reflectory-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        (group / limit).write_text(str(2**26))
    except OSError as error:
        group.rmdir()
        pytest.skip(f"no memory limit can be set here: {error}")
    yield group
    group.rmdir()


def fork_server() -> int:
    """The pid of the fork server of the only executor in this process."""
    servers = [pid for pid in children(os.getpid()) if SCRIPTED in command_line(pid)]
    assert len(servers) == 1
    return servers[0]


def command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def pids_said(executor: Scripted, attempt_id: str, count: int) -> list[int]:
    wait_until(lambda: len(said(executor, attempt_id)) >= count)
    return [int(line) for line in said(executor, attempt_id)]


def test_what_the_worker_returns_is_the_exit_code(executor: Scripted) -> None:
    executor.start(ticket("exit_with", threads=7))
    (ended,) = exits(executor, 1)
    assert (ended.attempt_id, ended.returncode, ended.signal) == ("a1", 7, None)
    assert ended.detail == "exited with code 7"


def test_a_worker_that_raises_leaves_its_traceback_and_ends_with_1(executor: Scripted) -> None:
    executor.start(ticket("crash"))
    (ended,) = exits(executor, 1)
    assert ended.returncode == 1
    assert said(executor, "a1")[-1] == "RuntimeError: this attempt does not like its job"


def test_a_worker_that_leaves_does_not_run_the_server_a_second_time(
    executor: Scripted,
) -> None:
    executor.start(ticket("leave"))
    (ended,) = exits(executor, 1)
    assert ended.returncode == 1
    executor.start(ticket("exit_with", "a2", threads=0))
    (ended,) = exits(executor, 1)
    assert (ended.attempt_id, ended.returncode) == ("a2", 0)


def test_an_attempt_whose_log_finds_no_room_ends_alone(executor: Scripted) -> None:
    executor.start(ticket("wait", "beside"))
    executor.log_path("a1").symlink_to("/dev/full")
    executor.start(ticket("keep_in_a_buffer"))
    (ended,) = exits(executor, 1)
    assert (ended.attempt_id, ended.returncode) == ("a1", 0)
    assert len(children(fork_server())) == 1


def test_the_log_holds_everything_that_was_written(executor: Scripted) -> None:
    executor.start(ticket("talk"))
    exits(executor, 1)
    assert sorted(said(executor, "a1")) == ["past python", "to stderr", "to stdout"]
    assert executor.log_path("a1").stat().st_mode & 0o777 == 0o600


def test_kill_9_of_an_attempt_is_reported_with_its_signal(executor: Scripted) -> None:
    executor.start(ticket("wait"))
    (attempt,) = children(fork_server())
    os.kill(attempt, signal.SIGKILL)
    (ended,) = exits(executor, 1)
    assert (ended.attempt_id, ended.returncode, ended.signal) == ("a1", None, 9)
    assert ended.detail == "killed by signal 9 (Killed)"


def test_an_attempt_that_breaks_down_is_told_from_one_that_is_killed(
    executor: Scripted,
) -> None:
    executor.start(ticket("break_down"))
    (ended,) = exits(executor, 1)
    assert ended.detail == "crashed by signal 6 (Aborted)"


def test_an_attempt_that_takes_too_much_memory_says_so(
    executor: Scripted, small_memory: Path
) -> None:
    executor.start(replace(ticket("take_too_much"), data=small_memory))
    (ended,) = exits(executor, 1)
    assert ended.signal == signal.SIGKILL
    assert ended.detail.startswith("out of memory: the kernel killed the worker")
    executor.start(ticket("wait", "a2"))
    (attempt,) = children(fork_server())
    os.kill(attempt, signal.SIGKILL)
    (ended,) = exits(executor, 1)
    assert ended.detail == "killed by signal 9 (Killed)"


def test_cancel_lets_an_attempt_end_in_an_orderly_way(executor: Scripted) -> None:
    executor.start(ticket("stand_up"))
    wait_until(lambda: said(executor, "a1") == ["ready"])
    executor.cancel("a1", 600.0)
    (ended,) = exits(executor, 1)
    assert (ended.returncode, ended.signal) == (143, None)


def test_cancel_kills_what_does_not_end_within_the_grace_time(executor: Scripted) -> None:
    executor.start(ticket("turn_deaf"))
    wait_until(lambda: said(executor, "a1") == ["ready"])
    begun = time.monotonic()
    executor.cancel("a1", 3.0)
    assert time.monotonic() - begun < 3.0
    (ended,) = exits(executor, 1)
    assert ended.signal == signal.SIGKILL
    assert time.monotonic() - begun >= 3.0


def test_a_second_cancel_may_only_shorten_the_grace_time(executor: Scripted) -> None:
    executor.start(ticket("turn_deaf"))
    wait_until(lambda: said(executor, "a1") == ["ready"])
    executor.cancel("a1", 0.0)
    executor.cancel("a1", 600.0)
    (ended,) = exits(executor, 1)
    assert ended.signal == signal.SIGKILL


def test_cancel_reaches_the_whole_group(executor: Scripted) -> None:
    executor.start(ticket("have_children"))
    offspring = pids_said(executor, "a1", 2)
    assert all(alive(pid) for pid in offspring)
    executor.cancel("a1", 0.1)
    exits(executor, 1)
    wait_until(lambda: not any(alive(pid) for pid in offspring))


def test_what_an_attempt_leaves_behind_ends_with_it(executor: Scripted) -> None:
    executor.start(ticket("have_children_and_end"))
    offspring = pids_said(executor, "a1", 2)
    (ended,) = exits(executor, 1)
    assert ended.returncode == 0
    wait_until(lambda: not any(alive(pid) for pid in offspring))


def test_an_attempt_is_a_session_of_its_own_with_clean_signals_and_files(
    executor: Scripted,
) -> None:
    executor.start(ticket("show_process"))
    exits(executor, 1)
    # Descriptor 3 is the listing of the folder itself.
    assert said(executor, "a1") == [
        "open 0 1 2 3",
        "group True",
        "gpus ''",
        "SIGTERM True",
        "SIGINT True",
        "SIGCHLD True",
        "blocked []",
    ]


def test_an_attempt_sees_the_gpu_of_its_slot_alone(executor: Scripted) -> None:
    executor.start(ticket("show_process", device="cuda:GPU-7"))
    exits(executor, 1)
    assert "gpus 'GPU-7'" in said(executor, "a1")


def test_an_attempt_sees_no_secret_of_the_coordinator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REFLECTORY_DATABASE_URL", "postgresql://user:hunter2@host/name")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    monkeypatch.setenv("REFLECTORY_BACKEND", "torch")
    executor = Scripted(tmp_path / "logs")
    try:
        executor.start(ticket("have_children"))
        pid, _ = pids_said(executor, "a1", 2)
        seen = Path(f"/proc/{pid}/environ").read_bytes()
    finally:
        executor.close()
    assert b"REFLECTORY_BACKEND=torch" in seen
    assert b"hunter2" not in seen


def test_kill_9_of_the_coordinator_leaves_no_orphan(tmp_path: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-m", "tests.search.agents.executors.coordinator", str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
    )
    with owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "started\n"
        below = descendants(owner.pid)
        log = tmp_path / "two.log"
        wait_until(lambda: log.exists() and len(log.read_text().split()) == 2)
        below += [int(pid) for pid in log.read_text().split()]
        # The server, its two attempts, and the two descendants of one of those.
        assert len(set(below)) >= 5
        owner.kill()
    wait_until(lambda: not any(alive(pid) for pid in below))


def test_kill_9_of_the_fork_server_ends_its_attempts_and_the_next_one_gets_a_new_server(
    executor: Scripted,
) -> None:
    executor.start(ticket("wait", "one"))
    executor.start(ticket("have_children", "two"))
    offspring = pids_said(executor, "two", 2)
    server = fork_server()
    below = descendants(server)
    os.kill(server, signal.SIGKILL)
    ended = exits(executor, 2)
    assert {end.attempt_id for end in ended} == {"one", "two"}
    assert {(end.returncode, end.signal) for end in ended} == {(None, 9)}
    wait_until(lambda: not any(alive(pid) for pid in [*below, *offspring]))
    executor.start(ticket("exit_with", "three", threads=0))
    assert [end.attempt_id for end in exits(executor, 1)] == ["three"]
    assert fork_server() != server


def test_sigterm_to_the_fork_server_ends_everything_it_started(executor: Scripted) -> None:
    executor.start(ticket("have_children"))
    offspring = pids_said(executor, "a1", 2)
    os.kill(fork_server(), signal.SIGTERM)
    (ended,) = exits(executor, 1)
    assert ended.signal == 9
    wait_until(lambda: not any(alive(pid) for pid in offspring))


def test_many_attempts_leave_no_descriptor_no_zombie_and_no_thread(executor: Scripted) -> None:
    executor.start(ticket("exit_with", "warm", threads=0))
    exits(executor, 1)
    server = fork_server()

    def held() -> tuple[int, int, int]:
        here = len(os.listdir("/proc/self/fd"))
        there = len(os.listdir(f"/proc/{server}/fd"))
        return here, there, threading.active_count()

    before = held()
    for number in range(50):
        executor.start(ticket("exit_with", f"a{number}", threads=0))
        assert exits(executor, 1)[0].returncode == 0
    wait_until(lambda: held() == before)
    assert children(server) == []


def test_a_server_with_a_second_thread_refuses_to_fork(tmp_path: Path) -> None:
    executor = Scripted(tmp_path, program="tests.search.agents.executors.threaded")
    with pytest.raises(ExecutorError, match="2 threads where 1 is allowed"):
        executor.start(ticket("exit_with"))
    executor.close()


def test_this_process_with_its_threads_refuses_to_fork() -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        with pytest.raises(ExecutorError, match="threads where 1 is allowed"):
            serve(None, lambda _ticket, _pipe: 0)  # pyright: ignore[reportArgumentType]
    finally:
        done.set()
        thread.join()


def test_a_server_that_cannot_come_up_is_told_with_its_last_words(tmp_path: Path) -> None:
    executor = Scripted(tmp_path, program="tests.search.no_such_program")
    with pytest.raises(ExecutorError, match=r"No module named tests\.search\.no_such_program"):
        executor.start(ticket("exit_with"))
    assert executor.poll(0.0) == []
    executor.close()


def test_a_server_that_never_answers_is_an_error_and_not_a_hang(tmp_path: Path) -> None:
    server = ServerProcess(
        "tests.search.agents.executors.silent",
        launch=by_exec,
        errors=tmp_path / "errors.log",
        on_exit=lambda _ended: None,
    )
    asked = StartAttempt(
        ticket=ticket("exit_with"), log=str(tmp_path / "log"), containment=Containment(kind="none")
    )
    ours, theirs = Pipe()
    with (
        ours,
        theirs,
        pytest.raises(ExecutorError, match=r"did not start attempt a1 in 0\.3 s and was killed"),
    ):
        server.start(asked, timeout_seconds=0.3, pipe=theirs)
    server.close()
    assert not [pid for pid in children(os.getpid()) if "silent" in command_line(pid)]


def test_an_attempt_whose_log_cannot_be_written_is_not_started(executor: Scripted) -> None:
    executor.log_path("a1").mkdir(parents=True)
    with pytest.raises(ExecutorError, match=r"was not started: .*Is a directory"):
        executor.start(ticket("exit_with"))
    executor.start(ticket("exit_with", "a2", threads=0))
    assert [end.attempt_id for end in exits(executor, 1)] == ["a2"]


def test_ctrl_c_in_the_terminal_does_not_reach_attempts(executor: Scripted) -> None:
    executor.start(ticket("wait"))
    server = fork_server()
    assert os.getsid(server) == server != os.getsid(0)
