"""Trials that take more than there is, and trials that take down what runs them."""

import os
import resource
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from storage.endings import AttemptCause
from storage.engine import Database
from storage.records import AttemptKind, AttemptRecord
from storage.repositories.attempts import Attempts
from tests.service.running import Server, wait_until

# Limits and control groups are put on a server once it runs, and what it starts has to have them.
pytestmark = pytest.mark.cold

GIBIBYTE = 2**30
DIED = "died with its coordinator"

SMALL: dict[str, Any] = {
    "task": {"kind": "digits"},
    "architectures": ["rnn"],
    "parametrizations": ["dense"],
    "objectives": ["quality", "parameters"],
    "sampler": {"kind": "random"},
    "seed": 5,
}


def process(server: Server, command: str) -> psutil.Process:
    return next(one for one in server.processes() if command in one.cmdline())


def score(one: psutil.Process) -> int:
    return int(Path(f"/proc/{one.pid}/oom_score_adj").read_text())


@pytest.fixture
def memory_group() -> Generator[Path | None]:
    """A real control group with 3 GiB, where this machine lets us make one."""
    memberships = (line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().split())
    paths = {controllers: path.strip("/") for _, controllers, path in memberships}
    root = Path("/sys/fs/cgroup")
    older, newer = root / "memory" / paths.get("memory", ""), root / paths.get("", "")
    base, limit = (older, "memory.limit_in_bytes") if "memory" in paths else (newer, "memory.max")
    group = base / f"reflectory-service-{os.getpid()}"
    try:
        group.mkdir()
    except OSError:
        yield None
        return
    try:
        (group / limit).write_text(str(3 * GIBIBYTE))
    except OSError:
        group.rmdir()
        yield None
        return
    yield group
    wait_until(lambda: not (group / "cgroup.procs").read_text(), what="an empty control group")
    group.rmdir()


def run_out_of_memory(folder: Path, confine: Callable[[int], None], by: str) -> list[str]:
    """Run a study half of whose trials need more memory than there is; the reasons of those."""
    # As if everything would fit: nothing is refused before it runs.
    server = Server(folder / "data", environment={"REFLECTORY_SLOT_MEMORY": "1TiB"})
    with closing(server):
        server.launch()
        confine(server.pid)
        wait_until(lambda: server.answers("/readyz") == 200, what=f"a server; {server.log}")
        before = {name: process(server, name).pid for name in ("api", "coordinator")}
        # 40,000^2 weights are 6.4 GB.
        space: dict[str, Any] = {
            "hidden_size": {"options": [8, 40_000]},
            "batch_size": {"options": [32, 64]},
        }
        space["learning_rate"] = 1e-3
        grid = {"sampler": {"kind": "grid"}, "budget": {"trials": 4, "epochs": 2}}
        ended = server.wait(server.submit({**SMALL, **grid, "space": space}), seconds=600)
        sys.stdout.write(f"memory was limited by {by}\n")
        assert ended["state"] == "finished"
        trials = server.trials(ended["id"])
        large = [one for one in trials if one["hyperparameters"]["rnn.hidden_size"] == 40_000]
        small = [one for one in trials if one["hyperparameters"]["rnn.hidden_size"] == 8]
        assert [one["outcome"] for one in small] == ["complete"] * 2
        assert [one["outcome"] for one in large] == ["infeasible"] * 2
        after = {name: process(server, name).pid for name in ("api", "coordinator")}
        assert after == before, f"a process of the service was killed; log {server.log}"
        assert server.stop() == 0
    reasons = [one["reason"] for one in large]
    assert all(reason.startswith("out of memory: ") for reason in reasons), reasons
    return reasons


def limit_data(pid: int) -> None:
    """Give a process, and all that it starts, a limit each."""
    resource.prlimit(pid, resource.RLIMIT_DATA, (3 * GIBIBYTE, 3 * GIBIBYTE))


@pytest.mark.slow
def test_trials_that_need_more_memory_than_there_is_end_and_nothing_else_does(
    tmp_path: Path, memory_group: Path | None
) -> None:
    """In a real control group the kernel chooses whom it kills; without one, all are limited."""
    if memory_group is None:
        run_out_of_memory(tmp_path, limit_data, "RLIMIT_DATA")
        return
    procs = memory_group / "cgroup.procs"
    reasons = run_out_of_memory(tmp_path, lambda pid: _join(procs, pid), "a control group")
    assert all(reason.startswith("out of memory: the kernel killed") for reason in reasons), reasons


def _join(procs: Path, pid: int) -> None:
    procs.write_text(str(pid))


@pytest.mark.slow
def test_trials_are_refused_more_memory_than_there_is(tmp_path: Path) -> None:
    """What torch is refused ends its trial, at its first attempt."""
    reasons = run_out_of_memory(tmp_path, limit_data, "RLIMIT_DATA")
    assert not any("killed" in reason for reason in reasons), reasons


# The coordinator starts four times: half a minute, and far more on a busy machine.
@pytest.mark.slow
def test_a_trial_is_killed_before_what_runs_it_and_one_that_kills_it_three_times_ends(
    tmp_path: Path,
) -> None:
    """Trial 0 is the guilty one, by whose side trial 1 runs; the third waits for a slot.

    The test kills the coordinator whenever trial 0 is at work, as a machine without memory would.
    """
    server = Server(tmp_path / "data").start()
    database = Database(f"sqlite:///{server.data_dir / 'reflectory.db'}")
    try:
        spec = {**SMALL, "space": {"hidden_size": 16, "batch_size": 32}}
        study_id = server.submit({**spec, "budget": {"trials": 3, "epochs": 80}})

        def at_work() -> list[AttemptRecord]:
            """The attempts whose processes have begun."""
            with database.read() as session:
                running = Attempts(session).running(study_id)
            logs = server.data_dir / "logs"
            begun = [one for one in running if (logs / f"{one.id}.log").exists()]
            return [one for one in begun if (logs / f"{one.id}.log").stat().st_size]

        def work_on(*numbers: int) -> Callable[[], bool]:
            return lambda: {one.trial for one in at_work()} == set(numbers)

        for _ in range(2):
            wait_until(work_on(0, 1), what="two trials at work")
            coordinator = process(server, "coordinator")
            scores = [score(one) for one in server.workers_at_work()]
            assert min(scores) >= 800
            assert score(coordinator) < 200
            assert score(process(server, "api")) < 200
            coordinator.send_signal(signal.SIGKILL)
            wait_until(lambda: len(losses(database, study_id, 0)), what="a loss that is noticed")
            wait_until(lambda: not server.workers_at_work(), what="the end of all attempts")
        wait_until(work_on(0), what="the suspect, alone")
        process(server, "coordinator").send_signal(signal.SIGKILL)
        wait_until(work_on(1), what="the other suspect, alone")
        ended = server.wait(study_id, seconds=600)
        assert ended["state"] == "finished"
        guilty, beside, later = server.trials(study_id)
        assert (guilty["outcome"], guilty["reason"]) == (
            "infeasible",
            "it took its machine down 3 times",
        )
        assert [beside["outcome"], later["outcome"]] == ["complete"] * 2
        assert losses(database, study_id, 0) == [DIED] * 3
        assert losses(database, study_id, 1) == [DIED] * 2
        assert losses(database, study_id, 2) == []
        alone = attempts_of(database, study_id, 1)[-1]
        others = [*attempts_of(database, study_id, 0), *attempts_of(database, study_id, 2)]
        assert not [one for one in others if overlap(one, alone)], "it did not run alone"
    finally:
        database.dispose()
        server.close()


def attempts_of(database: Database, study_id: str, number: int) -> list[AttemptRecord]:
    with database.read() as session:
        return Attempts(session).of_trial(study_id, number, AttemptKind.TRAIN)


def losses(database: Database, study_id: str, number: int) -> list[str | None]:
    """Why attempts of a trial were lost."""
    ended = attempts_of(database, study_id, number)
    return [
        one.reason
        for one in ended
        if one.state == "lost" and one.cause is not AttemptCause.RESTARTED
    ]


def overlap(one: AttemptRecord, other: AttemptRecord) -> bool:
    assert one.ended_at is not None
    assert other.ended_at is not None
    return one.started_at < other.ended_at and other.started_at < one.ended_at
