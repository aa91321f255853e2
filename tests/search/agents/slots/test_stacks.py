"""Trials that are trained together in one process, and how they come and go."""

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from search.agents.slots import slot_processes
from search.agents.worker import DONE, FAILED, TERMINATED
from search.training.jobs import PrepareJob, TrainJob
from storage.endings import AttemptCause
from tests.patience import wait_while_it_moves
from tests.search.agents.slots.harness import Heard, Slots, slots_in
from tests.search.agents.slots.test_slot_processes import job

LONG = 10_000
"""Epochs of a trial that does not come to its end."""
STORED = "artifact resume"
"""Said now and then, by the clock."""


@pytest.fixture
def slots(tmp_path: Path) -> Iterator[Slots]:
    with slots_in(tmp_path) as slots:
        yield slots


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slots]:
    """Slots on which trials are trained one by one."""
    with slots_in(tmp_path_factory.mktemp("alone")) as slots:
        yield slots


def curve(*of: Heard) -> list[tuple[int, float | None, float]]:
    reports = {report.epoch: report for one in of for report in one.epochs}
    return [(one.epoch, one.train_loss, one.validation) for one in reports.values()]


def assert_alike(found: Sequence[tuple[Any, ...]], wanted: Sequence[tuple[Any, ...]]) -> None:
    """One sample of the 400 may fall otherwise: sums are rounded in another order."""
    assert [one[0] for one in found] == [one[0] for one in wanted]
    for one, other in zip(found, wanted, strict=True):
        assert one[1] == pytest.approx(other[1], rel=1e-4)
        assert one[2] == pytest.approx(other[2], abs=1.5 / 400)


def expected(alone: Slots, attempt: str, of: TrainJob) -> Heard:
    """What a trial says that is trained alone."""
    if not alone.of(attempt).frames:
        alone.do(attempt, of)
    return alone.of(attempt)


def wait_for_epochs(*of: Heard, count: int = 1) -> None:
    wait_while_it_moves(lambda: all(len(one.epochs) >= count for one in of), what="epochs")


def test_trials_are_trained_together_and_each_ends_by_itself(slots: Slots, alone: Slots) -> None:
    jobs = {
        "short": job(seed=1, epochs=3, learning_rate=1e-2),
        "middle": job(seed=2, epochs=5),
        "long": job(seed=3, epochs=7),
    }
    places = dict(zip(jobs, (0, 1, 7), strict=True))
    for name, at in places.items():
        slots.start(name, jobs[name], at=at, log_format="json", log_fields={"of": name})
    ends = {name: slots.end_of(name) for name in jobs}
    assert {(one.returncode, one.cause) for one in ends.values()} == {(DONE, AttemptCause.EXITED)}
    (_,) = slots.pids()
    for name, one in jobs.items():
        heard, wanted = slots.of(name), expected(alone, name, one)
        words, others = ([word for word in one.words if word != STORED] for one in (heard, wanted))
        assert words == others
        assert_alike(curve(heard), curve(wanted))
        assert heard.completion.outcome == "complete"
        assert heard.completion.quality == pytest.approx(wanted.completion.quality, abs=1.5 / 400)
        log = slots.log(name)
        assert log.count('"message": "train job begins on cpu"') == 1
        for other in jobs:
            assert (f'"of": "{other}"' in log) == (other == name)


def test_what_members_have_held_is_the_slots_time(slots: Slots) -> None:
    # So that the process is there, and what is waited for is the stack.
    slots.do("before", job())
    names = ("one", "two", "three")
    began = time.monotonic()
    for at, name in enumerate(names):
        slots.start(name, job(seed=at, epochs=10 + 10 * at), at=at)
    for name in names:
        slots.end_of(name)
    took = time.monotonic() - began
    held = {name: slots.of(name).completion.held_seconds or 0.0 for name in names}
    assert held["one"] < held["two"] < held["three"]
    # Had each its own time, it would be two times as much.
    assert 0.6 * took < sum(held.values()) <= took
    for name in names:
        told = [report.held_seconds or 0.0 for report in slots.of(name).epochs]
        assert told == sorted(told)
        assert told[-1] <= held[name]


def test_one_that_is_ended_leaves_the_others_as_they_were(slots: Slots, alone: Slots) -> None:
    stays = job(seed=2, epochs=40)
    leaves = slots.start("leaves", job(seed=1, epochs=LONG), at=0)
    heard = slots.start("stays", stays, at=1)
    wait_for_epochs(leaves, heard)
    slots.processes.cancel("leaves", 0.0)
    ended = slots.end_of("leaves")
    assert (ended.returncode, ended.signal, ended.cause) == (TERMINATED, None, AttemptCause.EXITED)
    assert leaves.words[-1] == "artifact resume"
    assert not leaves.said("end")
    assert not slots.has_ended("stays")
    assert "told to leave" in slots.log("leaves")
    # Its place is free, and the next one there joins those who stayed.
    joined = slots.start("joined", job(seed=1, epochs=2), at=0)
    joined.artifacts["resume"] = leaves.artifacts["resume"]
    assert slots.end_of("stays").returncode == DONE
    assert slots.end_of("joined").returncode == DONE
    assert len(slots.pids()) == 1
    assert_alike(curve(heard), curve(expected(alone, "stays", stays)))


@pytest.mark.parametrize("pauses", [False, True])
def test_a_verdict_is_for_its_own_attempt(slots: Slots, alone: Slots, pauses: bool) -> None:
    goes_on = job(seed=2, epochs=8)
    told = slots.of("told")

    def verdict(report: Any) -> str | None:
        if report.epoch == 2:
            order = {"kind": "stop", "reason": "enough", "pauses": pauses}
            slots.processes.tell("told", order)
        return None

    told.verdict = verdict
    slots.start("told", job(seed=1, epochs=LONG), at=0)
    heard = slots.start("goes-on", goes_on, at=1)
    assert slots.end_of("told").returncode == DONE
    assert slots.end_of("goes-on").returncode == DONE
    completion = told.completion
    assert (completion.outcome, completion.reason) == ("paused" if pauses else "stopped", "enough")
    assert completion.epochs_trained == 2
    assert ("resume" in told.artifacts) or not pauses
    assert_alike(curve(heard), curve(expected(alone, "goes-on", goes_on)))


def test_all_say_their_epoch_before_one_waits_for_its_verdict(slots: Slots) -> None:
    held = threading.Event()
    both = [slots.of("one"), slots.of("two")]
    for one in both:
        one.holds = lambda frame: frame["kind"] == "epoch" and not held.is_set()
    slots.start("one", job(seed=1, epochs=2), at=0)
    slots.start("two", job(seed=2, epochs=2), at=1)
    # Where they begin at different moments, the first epoch of one may be over before.
    wait_for_epochs(both[0])
    for name in ("one",) if not both[1].epochs else ():
        slots.processes.tell(name, {"kind": "go_on"})
    wait_for_epochs(*both)
    held.set()
    for name in ("one", "two"):
        slots.processes.tell(name, {"kind": "go_on"})
    assert {slots.end_of(name).returncode for name in ("one", "two")} == {DONE}


def test_those_of_a_killed_process_come_to_the_numbers_of_an_unbroken_run(
    slots: Slots, alone: Slots
) -> None:
    # Stored after each step, so that what is stored is as far as what was reported.
    often = {"checkpoint_seconds": 0.0}
    jobs = {
        name: job(seed=seed, epochs=12).model_copy(update=often)
        for seed, name in enumerate(("one", "two"))
    }
    before = [slots.start(name, one, at=int(name == "two")) for name, one in jobs.items()]
    wait_while_it_moves(
        lambda: all("resume" in one.artifacts and len(one.epochs) > 1 for one in before),
        what="states to go on from",
    )
    (pid,) = slots.pids()
    os.kill(pid, signal.SIGKILL)
    for name in jobs:
        assert slots.end_of(name).signal == signal.SIGKILL
    for name, one in jobs.items():
        again = slots.start(f"{name}-again", one, at=int(name == "two"))
        again.artifacts["resume"] = slots.of(name).artifacts["resume"]
    for (name, one), first in zip(jobs.items(), before, strict=True):
        assert slots.end_of(f"{name}-again").returncode == DONE
        again = slots.of(f"{name}-again")
        assert again.epochs[0].epoch > 1
        assert_alike(curve(first, again), curve(expected(alone, f"whole-{name}", one)))


def test_what_breaks_a_process_is_not_known_of_several(slots: Slots) -> None:
    both = [slots.start(f"a{at}", job(seed=at, epochs=LONG), at=at) for at in (0, 1)]
    wait_for_epochs(*both)
    os.kill(slots.pids()[0], signal.SIGSEGV)
    assert {slots.end_of(f"a{at}").cause for at in (0, 1)} == {AttemptCause.DIED}


def test_what_a_broken_process_has_not_begun_is_begun_by_another(slots: Slots) -> None:
    """Another architecture waits within the process, and a prepare job outside of it."""
    first = slots.start("first", job(epochs=LONG), at=0)
    other = slots.start("other", job(kind=1, epochs=2), at=1)
    wait_for_epochs(first)
    prepare = PrepareJob(task=job().task)
    slots.start("prepare", prepare, at=2, together=False)
    assert slots.processes.waiting() == ["other", "prepare"]
    os.kill(slots.pids()[0], signal.SIGKILL)
    assert slots.end_of("first").cause == AttemptCause.LOST
    assert slots.end_of("other").returncode == DONE
    assert slots.end_of("prepare").returncode == DONE
    assert other.completion.outcome == "complete"
    assert other.words.count("fetch resume") == 1


def test_other_trials_follow_in_order_when_a_stack_is_over(slots: Slots) -> None:
    started: list[str] = []
    for number, kind in enumerate((0, 0, 1, 2, 0)):
        name = f"a{number}"
        started.append(name)
        slots.start(name, job(seed=number, kind=kind, epochs=3), at=number)
    assert {slots.end_of(name).returncode for name in started} == {DONE}
    assert len(slots.pids()) == 1
    begun = [slots.processes.log_path(name).read_text()[:23] for name in started]
    assert begun[1:] == sorted(begun[1:])


def test_one_that_waits_is_called_back(slots: Slots) -> None:
    first = slots.start("first", job(epochs=LONG), at=0)
    wait_for_epochs(first)
    slots.start("within", job(kind=1), at=1)
    slots.start("outside", PrepareJob(task=job().task), at=2, together=False)
    for name in ("outside", "within"):
        slots.processes.cancel(name, 60.0)
        ended = slots.end_of(name)
        assert (ended.returncode, ended.detail) == (None, "not started: it was called back")
        assert not slots.of(name).frames
    assert not slots.has_ended("first")


def test_one_that_fails_does_so_alone_and_nobody_joins_any_more(slots: Slots) -> None:
    stays = slots.start("stays", job(seed=1, epochs=60), at=0)
    wait_for_epochs(stays)
    (pid,) = slots.pids()
    failing = job(seed=2, epochs=20).model_copy(update={"continues": 7})
    fails = slots.start("fails", failing, at=1)
    ended = slots.end_of("fails")
    assert (ended.returncode, ended.cause) == (FAILED, AttemptCause.EXITED)
    assert "has no checkpoint" in str(fails.completion.reason)
    assert "Traceback" in slots.log("fails")
    assert "Traceback" not in slots.log("stays")
    # It arrives while the process retires, and is done by the next one.
    slots.start("late", job(seed=3), at=1)
    assert slots.processes.waiting() == ["late"]
    assert slots.end_of("stays").returncode == DONE
    assert slots.end_of("late").returncode == DONE
    assert pid not in slots.pids()


def test_one_that_does_not_leave_is_killed_with_all(
    slots: Slots, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot_processes, "LEAVE_SECONDS", 0.2)
    both = [slots.start(f"a{at}", job(seed=at, epochs=LONG), at=at) for at in (0, 1)]
    wait_for_epochs(*both)
    os.kill(slots.pids()[0], signal.SIGSTOP)
    slots.processes.cancel("a0", 0.0)
    ends = [slots.end_of(f"a{at}") for at in (0, 1)]
    assert {(one.signal, one.cause) for one in ends} == {(signal.SIGKILL, AttemptCause.LOST)}


def test_sigterm_has_all_store_where_they_are(slots: Slots) -> None:
    both = [slots.start(f"a{at}", job(seed=at, epochs=LONG), at=at) for at in (0, 1)]
    wait_for_epochs(*both)
    os.kill(slots.pids()[0], signal.SIGTERM)
    for at, heard in enumerate(both):
        ended = slots.end_of(f"a{at}")
        assert ended.returncode == TERMINATED
        assert heard.words[-1] == "artifact resume"
        assert "stopped by SIGTERM" in slots.log(f"a{at}")
    wait_while_it_moves(lambda: not slots.pids(), what="the process's end")


def test_of_another_tenant_nothing_is_trained_beside(slots: Slots) -> None:
    ours = slots.start("ours", job(epochs=LONG), at=0)
    wait_for_epochs(ours)
    slots.start("theirs", job(seed=1), at=1, tenant="another")
    assert slots.processes.waiting() == ["theirs"]
    (pid,) = slots.pids()
    slots.processes.cancel("ours", 60.0)
    assert slots.end_of("ours").returncode == TERMINATED
    assert slots.end_of("theirs").returncode == DONE
    assert pid not in slots.pids()
