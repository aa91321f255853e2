"""The array script of SLURM, run by a stand-in for `sbatch`, for a real server."""

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from service.auth.api_keys import create_key
from storage.engine import Database
from storage.records import LOCAL
from tests.deploy.files import DEPLOY
from tests.service.running import Server, wait_until

SCRIPT = DEPLOY / "slurm" / "agents.sbatch"
_PATIENCE_SECONDS = 240.0

SBATCH = """
import os, re, subprocess, sys
*options, script = sys.argv[1:]
said = [line.split(None, 1)[1] for line in open(script) if line.startswith("#SBATCH ")]
given = dict(re.fullmatch(r"--([a-z-]+)=(.*)", one.strip()).groups() for one in said + options)
first, last = map(int, given["array"].split("-"))
for task in range(first, last + 1):
    told = {
        "SLURM_ARRAY_JOB_ID": "70",
        "SLURM_JOB_ID": str(70 + task),
        "SLURM_ARRAY_TASK_ID": str(task),
        "SLURM_CPUS_PER_TASK": given["cpus-per-task"],
        "SLURM_MEM_PER_NODE": given["mem"].replace("G", "") + "000",
    }
    log = open(given["output"].replace("%A", "70").replace("%a", str(task)), "wb")
    task = subprocess.Popen(
        ["bash", script], env={**os.environ, **told}, stdout=log, stderr=log,
        start_new_session=True,
    )
    print(task.pid)
"""
"""Runs the tasks of an array as processes, by what the script and the command line say; prints
their process ids, where the real one prints the job's id."""

SPEC: dict[str, Any] = {
    "task": {"kind": "digits"},
    "architectures": ["rnn"],
    "parametrizations": ["dense"],
    "space": {"hidden_size": 16, "batch_size": 32},
    "objectives": ["quality", "parameters"],
    "sampler": {"kind": "random"},
    "budget": {"trials": 2, "epochs": 60},
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """One without slots of its own, which asks for keys; the work key is in a file beside."""
    (tmp_path / "data").mkdir()
    database = Database(f"sqlite:///{tmp_path / 'data' / 'reflectory.db'}")
    database.migrate()
    made = {
        scope: create_key(database.of(LOCAL), name=scope, scopes=(scope,)).text
        for scope in ("admin", "work")
    }
    database.dispose()
    (tmp_path / "key").write_text(made["work"] + "\n")
    server = Server(
        tmp_path / "data", workers=0, environment={"REFLECTORY_SLOT_WAIT_SECONDS": "240"}
    )
    server.http.headers["Authorization"] = f"Bearer {made['admin']}"
    yield server.start()
    server.close()


@pytest.fixture
def tasks(server: Server, tmp_path: Path) -> Iterator[list[psutil.Process]]:
    """The tasks of an array of two, each with one CPU."""
    sbatch = tmp_path / "sbatch"
    sbatch.write_text(f"#!{sys.executable}\n{SBATCH}")
    sbatch.chmod(stat.S_IRWXU)
    variables = {
        **os.environ,
        "REFLECTORY_SERVER": str(server.http.base_url),
        "AGENTS_KEY_FILE": str(tmp_path / "key"),
        "AGENTS_PYTHON": sys.executable,
        "AGENTS_SCRATCH": str(tmp_path / "scratch"),
    }
    command = [sbatch, "--array=0-1", "--cpus-per-task=1", f"--output={tmp_path}/%A_%a.log", SCRIPT]
    said = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    started = [psutil.Process(int(pid)) for pid in said.stdout.split()]
    yield started
    left = [below for task in started if task.is_running() for below in task.children(True)]
    for process in [*started, *left]:
        if process.is_running():
            process.kill()


def running_on(server: Server, study_id: str) -> set[str]:
    attempts = [one for trial in server.trials(study_id) for one in trial["attempts"]]
    return {str(one["machine"]) for one in attempts if one["state"] == "running"}


@pytest.mark.slow
def test_a_study_runs_on_an_arrays_agents_and_outlives_one_whose_time_is_over(
    server: Server, tasks: list[psutil.Process], tmp_path: Path
) -> None:
    study_id = server.submit(SPEC)
    wait_until(
        lambda: running_on(server, study_id) == {"slurm-70-0", "slurm-70-1"},
        what="an attempt on each task's agent",
        seconds=_PATIENCE_SECONDS,
    )
    key = (tmp_path / "key").read_text().strip()
    for task in tasks:
        assert not any(key in word for one in task.children(True) for word in one.cmdline())
    wait_until(
        lambda: all(server.curve(study_id, number) for number in (0, 1)),
        what="an epoch of each trial",
        seconds=_PATIENCE_SECONDS,
    )
    # As SLURM does before a task's time is over, to its script alone.
    tasks[0].send_signal(signal.SIGTERM)
    wait_until(
        lambda: not tasks[0].is_running() or tasks[0].status() == psutil.STATUS_ZOMBIE,
        what="the end of the task",
        seconds=_PATIENCE_SECONDS,
    )
    assert not list((tmp_path / "scratch").glob("task-70-0"))
    ended = server.wait(study_id, seconds=_PATIENCE_SECONDS)
    assert ended["state"] == "finished", ended["state_reason"]
    trials = server.trials(study_id)
    assert [trial["outcome"] for trial in trials] == ["complete", "complete"]
    moved = [one for trial in trials for one in trial["attempts"] if one["machine"] == "slurm-70-0"]
    assert [one["state"] for one in moved] == ["lost"]
    # The one that took over began where the first had stored its trial, and trained no epoch twice.
    for trial in trials:
        epochs = [point["epoch"] for point in server.curve(study_id, trial["number"])]
        assert epochs == sorted(set(epochs))


def test_without_a_server_it_says_what_to_set(tmp_path: Path) -> None:
    left = {name: value for name, value in os.environ.items() if name != "REFLECTORY_SERVER"}
    said = subprocess.run(["bash", SCRIPT], env=left, capture_output=True, text=True, check=False)
    assert said.returncode
    assert "set REFLECTORY_SERVER" in said.stderr
