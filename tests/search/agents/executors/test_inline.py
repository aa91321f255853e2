"""Attempts in this process: what is left as it was, and a whole study."""

import logging
import signal
from collections.abc import Callable
from pathlib import Path

import torch

from search.agents.executor import AttemptTicket
from search.agents.executors.inline import InlineExecutor
from search.agents.worker import TERMINATED
from tests.search.agents.executors.attempts import ticket
from tests.service.running import Server


def run(folder: Path, work: Callable[[AttemptTicket], int], *, threads: int = 1) -> InlineExecutor:
    executor = InlineExecutor(logs=folder, work=work)
    executor.start(ticket("", threads=threads), executor.capacity()[0])
    return executor


def test_an_attempt_that_raises_is_an_exit_code_with_its_traceback_in_the_log(
    tmp_path: Path,
) -> None:
    def work(_ticket: AttemptTicket) -> int:
        raise RuntimeError("this job is not liked")

    executor = run(tmp_path, work)
    (ended,) = executor.poll(0.0)
    assert (ended.returncode, ended.detail) == (1, "exited with code 1")
    log = executor.log_path("a1").read_text()
    assert log.startswith("Traceback")
    assert "this job is not liked" in log


def test_nothing_of_this_process_is_changed_for_good(tmp_path: Path) -> None:
    root = logging.getLogger()
    before = (list(root.handlers), root.level, torch.get_num_threads())
    seen: list[int] = []

    def work(_ticket: AttemptTicket) -> int:
        seen.append(torch.get_num_threads())
        logging.getLogger("an.attempt").info("at work")
        return 0

    executor = run(tmp_path, work, threads=2)
    executor.poll(0.0)
    assert seen == [2]
    assert "INFO an.attempt: at work" in executor.log_path("a1").read_text()
    assert (list(root.handlers), root.level, torch.get_num_threads()) == before


def test_a_sigterm_that_the_attempt_took_reaches_this_process_too(tmp_path: Path) -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: heard.append(number))
    try:
        executor = run(tmp_path, lambda _ticket: TERMINATED)
        (ended,) = executor.poll(0.0)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ended.returncode == TERMINATED
    assert heard == [signal.SIGTERM]


def test_attempts_run_in_the_order_of_their_start_one_at_a_poll(tmp_path: Path) -> None:
    ran: list[str] = []

    def work(given: AttemptTicket) -> int:
        ran.append(given.attempt_id)
        return 0

    executor = run(tmp_path, work)
    executor.start(ticket("", "a2"), executor.capacity()[0])
    assert [ended.attempt_id for ended in executor.poll(0.0)] == ["a1"]
    assert ran == ["a1"]
    assert [ended.attempt_id for ended in executor.poll(0.0)] == ["a2"]


def test_a_study_runs_within_the_coordinator(tmp_path: Path) -> None:
    server = Server(tmp_path / "data", environment={"REFLECTORY_EXECUTOR": "inline"})
    try:
        server.start()
        study_id = server.submit(
            {
                "task": {"kind": "digits"},
                "architectures": ["rnn"],
                "parametrizations": ["dense"],
                "space": {"hidden_size": 8},
                "duplicates": "replicate",
                "objectives": ["quality", "parameters"],
                "sampler": {"kind": "random"},
                "budget": {"trials": 2, "epochs": 2},
            }
        )
        ended = server.wait(study_id, seconds=500.0)
        assert ended["state"] == "finished"
        trials = server.trials(study_id)
        assert [trial["outcome"] for trial in trials] == ["complete", "complete"]
        slots = {one["slot"] for trial in trials for one in trial["attempts"]}
        assert slots == {"inline"}
        assert server.workers_at_work() == []
        assert server.stop() == 0
    finally:
        server.close()
