"""Attempts in this process: what is left as it was, and a whole study."""

import logging
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from search.agents.forking.unforked import Unforked
from search.agents.worker import DONE, TERMINATED
from search.tasks import Digits
from search.training.jobs import Job, PrepareJob, TrainJob
from tests.patience import wait_while_it_moves
from tests.search.agents.slots.harness import Slots
from tests.search.agents.slots.test_slot_processes import job
from tests.service.running import Server

PREPARE = PrepareJob(task=Digits())


def run(folder: Path, beside: Callable[[Slots], None]) -> Slots:
    """Slots in this thread, while their agent does something beside it."""
    unforked = Unforked()
    slots = Slots(folder, launch=unforked.launch)

    def work() -> None:
        try:
            beside(slots)
        finally:
            slots.processes.close()

    unforked.run(work)
    return slots


def test_nothing_of_this_process_is_changed_for_good(tmp_path: Path) -> None:
    root = logging.getLogger()
    before = (list(root.handlers), root.level, torch.get_num_threads())

    def both(slots: Slots) -> None:
        for attempt in ("one", "two"):
            assert slots.do(attempt, PREPARE, threads=2).returncode == DONE

    slots = run(tmp_path, both)
    for attempt in ("one", "two"):
        assert slots.log(attempt).count("prepare job begins") == 1
        assert slots.of(attempt).completion.outcome == "complete"
    assert (list(root.handlers), root.level, torch.get_num_threads()) == before


def test_what_goes_wrong_beside_is_raised_here(tmp_path: Path) -> None:
    def fail(_slots: Slots) -> None:
        raise RuntimeError("the machine is not liked")

    with pytest.raises(RuntimeError, match="is not liked"):
        run(tmp_path, fail)


def test_a_job_that_cannot_be_read_ends_its_attempt_and_not_this_process(tmp_path: Path) -> None:
    def work(slots: Slots) -> None:
        strange: Job = TrainJob.model_construct(kind="train")
        assert slots.do("one", strange).returncode == 1
        assert slots.do("two", PREPARE).returncode == DONE

    assert "Traceback" in run(tmp_path, work).log("one")


@pytest.mark.parametrize("by_order", [True, False])
def test_an_attempt_stores_where_it_is_when_it_is_told_to_end(
    tmp_path: Path, by_order: bool
) -> None:
    """A SIGTERM that the attempt took was meant for this process, which gets it too."""
    heard: list[int] = []

    def work(slots: Slots) -> None:
        attempt = slots.start("one", job(epochs=10_000))
        wait_while_it_moves(lambda: attempt.epochs, what="an epoch")
        if by_order:
            slots.processes.cancel("one", 60.0)
        else:
            signal.raise_signal(signal.SIGTERM)
        assert slots.end_of("one").returncode == TERMINATED
        assert attempt.words[-1] == "artifact resume"

    before = signal.signal(signal.SIGTERM, lambda number, _frame: heard.append(number))
    try:
        run(tmp_path, work)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == ([] if by_order else [signal.SIGTERM])


def test_slots_that_close_end_an_attempt_at_its_next_word(tmp_path: Path) -> None:
    def work(slots: Slots) -> None:
        attempt = slots.start("one", job(epochs=10_000))
        wait_while_it_moves(lambda: attempt.epochs, what="an epoch")

    assert not run(tmp_path, work).of("one").said("end")


def test_a_study_runs_within_its_agent(tmp_path: Path) -> None:
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
        slots = {one["slot"].rpartition("/")[2] for trial in trials for one in trial["attempts"]}
        assert slots == {"inline"}
        assert server.workers_at_work() == []
        assert server.stop() == 0
    finally:
        server.close()
