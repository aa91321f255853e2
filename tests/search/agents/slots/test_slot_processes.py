"""What a slot's process keeps for its next attempt, and what it must not."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from models.architectures import Gru, Mlp, Rnn
from models.model import ModelSpec
from models.parametrizations import Dense, LowRank
from search.agents.slots.wear import MOST_JOBS
from search.agents.worker import DONE, FAILED, TERMINATED
from search.errors import ExecutorError
from search.tasks import Digits
from search.training.jobs import TrainJob
from search.training.trial_spec import TrainingSpec, TrialSpec
from storage.endings import AttemptCause
from tests.patience import wait_while_it_moves
from tests.search.agents.slots.harness import Slots, slots_in


@pytest.fixture
def slots(tmp_path: Path) -> Iterator[Slots]:
    with slots_in(tmp_path) as slots:
        yield slots


def job(*, seed: int = 3, epochs: int = 1, kind: int = 0, learning_rate: float = 3e-3) -> TrainJob:
    """A small trial of digits; `kind` picks its network."""
    digits = Digits()
    architecture, parametrization = (
        (Rnn.model_validate({"hidden_size": 8}), Dense()),
        (Gru(hidden_size=6), LowRank(d=2)),
        (Mlp(hidden_size=10), Dense()),
    )[kind % 3]
    model = ModelSpec(
        architecture=architecture, parametrization=parametrization, signature=digits.signature()
    )
    training = TrainingSpec(learning_rate=learning_rate)
    return TrainJob(
        task=digits,
        trial=TrialSpec(model=model, training=training, seed=seed),
        number=0,
        epochs=epochs,
        checkpoint_seconds=0.1,
    )


def test_the_last_trial_of_a_process_is_the_trial_alone_bit_for_bit(tmp_path: Path) -> None:
    judged = job(seed=11, epochs=3, kind=1)
    with slots_in(tmp_path / "alone") as alone:
        assert alone.do("judged", judged).returncode == DONE
        expected = alone.epochs("judged"), alone.checkpoint("judged")
    with slots_in(tmp_path / "after-others") as slots:
        for number in range(MOST_JOBS - 1):
            slots.do(f"a{number}", job(seed=number, kind=number))
        (pid,) = slots.pids()
        slots.do("judged", judged)
        assert (slots.epochs("judged"), slots.checkpoint("judged")) == expected
        # It was the process's last: the next job has a new one.
        slots.do("next", job())
        assert pid not in slots.pids()


def test_a_process_is_kept_for_the_next_job_of_its_tenant_alone(slots: Slots) -> None:
    slots.do("first", job())
    (pid,) = slots.pids()
    slots.do("second", job(seed=4, kind=1))
    assert slots.pids() == [pid]
    slots.do("another", job(), tenant="somebody-else")
    assert pid not in slots.pids()


def test_a_process_that_was_told_to_end_stores_where_it_is_and_takes_no_job(
    slots: Slots,
) -> None:
    slots.do("good", job())
    (pid,) = slots.pids()
    slots.start("told", job(epochs=10_000))
    wait_while_it_moves(lambda: slots.epochs("told"), what="an epoch")
    slots.processes.cancel("told", 60.0)
    ended = slots.end_of("told")
    assert ended.returncode == TERMINATED
    assert slots.said("told", "artifact")[-1][0]["role"] == "resume"
    slots.do("next", job())
    assert pid not in slots.pids()


def test_what_a_killed_process_said_is_heard_before_its_end(slots: Slots) -> None:
    slots.start("killed", job(epochs=10_000))
    wait_while_it_moves(lambda: len(slots.epochs("killed")) > 3, what="epochs")
    (pid,) = slots.pids()
    os.kill(pid, signal.SIGKILL)
    ended = slots.end_of("killed")
    assert ended.signal == signal.SIGKILL
    assert ended.cause != AttemptCause.EXITED
    heard = [one["epoch"] for one in slots.epochs("killed")]
    assert heard == list(range(1, len(heard) + 1))
    assert slots.do("next", job()).returncode == DONE


def test_each_attempt_writes_its_own_log(slots: Slots) -> None:
    for name in ("one", "two"):
        slots.do(name, job(), log_format="json", log_fields={"of": name})
    for name, other in (("one", "two"), ("two", "one")):
        log = slots.processes.log_path(name).read_text()
        assert f'"of": "{name}"' in log
        assert f'"of": "{other}"' not in log


def test_processes_without_jobs_end_after_a_while(slots: Slots) -> None:
    slots.do("only", job())
    slots.processes.retire_idle(60.0)
    assert len(slots.pids()) == 1
    slots.processes.retire_idle(0.0)
    wait_while_it_moves(lambda: not slots.pids(), what="the process's end")
    assert slots.do("later", job()).returncode == DONE


def test_a_place_has_one_attempt_at_a_time(slots: Slots) -> None:
    slots.start("first", job(epochs=10_000))
    with pytest.raises(ExecutorError, match="has attempt first on it"):
        slots.start("second", job())
    slots.processes.cancel("first", 0.0)
    assert slots.end_of("first").returncode != FAILED
