"""What every executor promises to the coordinator, with the real worker against a real server."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from search.agents.executors import AttemptTicket, Executor, LocalExecutor, Slot
from search.agents.executors.inline import InlineExecutor
from search.agents.executors.slots import cpu_slots
from search.errors import ExecutorError
from search.tasks import Digits
from search.training.jobs import PrepareJob
from tests.search.agents.executors.attempts import exits
from tests.search.attempt_api import TOKEN, AttemptApi

Made = Callable[[Path, pytest.FixtureRequest], Executor]


def inline(folder: Path, _request: pytest.FixtureRequest) -> Executor:
    return InlineExecutor(logs=folder / "logs")


def local(folder: Path, _request: pytest.FixtureRequest) -> Executor:
    return LocalExecutor(cpu_slots(2), logs=folder / "logs")


@dataclass(frozen=True)
class Kind:
    """An executor, and what it promises beside what all do."""

    make: Made
    processes: bool = True
    """Attempts have processes of their own: they begin at once, run beside each other and end by
    force. In the coordinator's own process an attempt runs while `poll` is called, to its end."""

    def __str__(self) -> str:
        return self.make.__name__


EXECUTORS = (Kind(inline, processes=False), Kind(local))
WITH_PROCESSES = tuple(kind for kind in EXECUTORS if kind.processes)
WITHOUT = tuple(kind for kind in EXECUTORS if not kind.processes)

with_processes = pytest.mark.parametrize("executor", WITH_PROCESSES, indirect=True, ids=str)
without_processes = pytest.mark.parametrize("executor", WITHOUT, indirect=True, ids=str)


@pytest.fixture(scope="module", params=EXECUTORS, ids=str)
def executor(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Executor]:
    kind: Kind = request.param
    executor = kind.make(tmp_path_factory.mktemp("executor"), request)
    yield executor
    executor.close()


@pytest.fixture
def api() -> Iterator[AttemptApi]:
    with AttemptApi(PrepareJob(task=Digits())) as api:
        yield api


@pytest.fixture
def ticket(api: AttemptApi, executor: Executor, tmp_path: Path) -> AttemptTicket:
    return ticket_for(executor.capacity()[0], api, tmp_path)


def ticket_for(slot: Slot, api: AttemptApi, folder: Path) -> AttemptTicket:
    return AttemptTicket(
        url=api.url,
        attempt_id="a1",
        token=TOKEN,
        lease_seconds=60.0,
        device=slot.device,
        data=None,
        cache=folder / "cache",
        lock_folder=folder / "lock",
        threads=1,
    )


def hang(api: AttemptApi) -> None:
    """Have the worker wait for its job without end."""
    api.fault = lambda _method, _what: time.sleep(600)


# First, since these have executors of their own, which the machine's slots are free for.


@pytest.mark.parametrize("kind", WITH_PROCESSES, ids=str)
def test_close_ends_what_runs_and_starts_nothing_more(
    kind: Kind,
    api: AttemptApi,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    hang(api)
    executor = kind.make(tmp_path, request)
    slot = executor.capacity()[0]
    ticket = ticket_for(slot, api, tmp_path)
    executor.start(ticket, slot)
    api.wait_until(lambda: api.asked == ["GET job"])
    executor.close()
    assert [ended.attempt_id for ended in executor.poll(0.0)] == ["a1"]
    with pytest.raises(ExecutorError, match="closed"):
        executor.start(ticket, slot)
    executor.close()


@pytest.mark.parametrize("kind", WITHOUT, ids=str)
def test_close_takes_back_what_waits_and_starts_nothing_more(
    kind: Kind,
    api: AttemptApi,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    executor = kind.make(tmp_path, request)
    slot = executor.capacity()[0]
    ticket = ticket_for(slot, api, tmp_path)
    executor.start(ticket, slot)
    executor.close()
    assert [ended.attempt_id for ended in executor.poll(0.0)] == ["a1"]
    assert api.asked == []
    with pytest.raises(ExecutorError, match="closed"):
        executor.start(ticket, slot)
    executor.close()


def test_capacity_names_each_slot_once_and_what_it_stands_for(executor: Executor) -> None:
    slots = executor.capacity()
    assert slots
    assert len({slot.name for slot in slots}) == len(slots)
    for slot in slots:
        assert slot.device == "cpu" or slot.device.startswith("cuda:")
        assert slot.model
        assert 0 < slot.share <= 1


def test_an_attempt_does_its_job_and_its_end_is_told_once(
    executor: Executor, api: AttemptApi, ticket: AttemptTicket
) -> None:
    executor.start(ticket, executor.capacity()[0])
    (ended,) = exits(executor, 1)
    assert (ended.attempt_id, ended.returncode, ended.signal) == ("a1", 0, None)
    assert api.completion.outcome == "complete"
    assert executor.poll(0.0) == []


def test_what_the_worker_wrote_is_in_its_log(executor: Executor, ticket: AttemptTicket) -> None:
    executor.log_path("a1").unlink(missing_ok=True)
    executor.start(ticket, executor.capacity()[0])
    exits(executor, 1)
    assert "the attempt ends as complete" in executor.log_path("a1").read_text()


@with_processes
def test_attempts_run_beside_each_other(
    executor: Executor, api: AttemptApi, ticket: AttemptTicket
) -> None:
    hang(api)
    executor.start(ticket, executor.capacity()[0])
    # Another attempt, of which this server knows nothing: it is refused and ends meanwhile.
    api.wait_until(lambda: api.asked == ["GET job"])
    api.fault = lambda _method, _what: None
    executor.start(replace(ticket, attempt_id="a2"), executor.capacity()[-1])
    assert [ended.attempt_id for ended in exits(executor, 1)] == ["a2"]
    executor.cancel("a1", 0.0)
    assert [ended.attempt_id for ended in exits(executor, 1)] == ["a1"]


@with_processes
def test_cancel_ends_an_attempt_that_waits(
    executor: Executor, api: AttemptApi, ticket: AttemptTicket
) -> None:
    hang(api)
    executor.start(ticket, executor.capacity()[0])
    api.wait_until(lambda: api.asked == ["GET job"])
    begun = time.monotonic()
    executor.cancel("a1", 5.0)
    returned = time.monotonic() - begun
    (ended,) = exits(executor, 1)
    assert ended.returncode != 0
    assert returned < 5.0


@without_processes
def test_cancel_takes_back_an_attempt_that_has_not_begun(
    executor: Executor, api: AttemptApi, ticket: AttemptTicket
) -> None:
    executor.start(ticket, executor.capacity()[0])
    executor.cancel("a1", 0.0)
    (ended,) = exits(executor, 1)
    assert (ended.attempt_id, ended.returncode) == ("a1", None)
    assert api.asked == []


def test_cancel_of_an_attempt_that_ended_or_never_was_is_harmless(
    executor: Executor, ticket: AttemptTicket
) -> None:
    executor.start(ticket, executor.capacity()[0])
    exits(executor, 1)
    executor.cancel("a1", 0.0)
    executor.cancel("never-seen", 0.0)
    assert executor.poll(0.1) == []


def test_poll_waits_for_a_first_end_and_no_longer(
    executor: Executor, ticket: AttemptTicket
) -> None:
    begun = time.monotonic()
    assert executor.poll(0.2) == []
    assert time.monotonic() - begun >= 0.2
    begun = time.monotonic()
    executor.start(ticket, executor.capacity()[0])
    assert [ended.attempt_id for ended in executor.poll(500.0)] == ["a1"]
    assert time.monotonic() - begun < 250.0


def test_an_attempt_is_not_started_again_before_it_ended(
    executor: Executor, api: AttemptApi, ticket: AttemptTicket
) -> None:
    hang(api)
    slot = executor.capacity()[0]
    executor.start(ticket, slot)
    with pytest.raises(ExecutorError, match="a1 runs already"):
        executor.start(ticket, slot)
    executor.cancel("a1", 0.0)
    assert len(exits(executor, 1)) == 1


def test_a_device_that_is_not_here_is_refused_with_those_that_are(
    executor: Executor, ticket: AttemptTicket
) -> None:
    slot = Slot("gpu-9-0", "cuda:GPU-none", "no such GPU", 1.0)
    with pytest.raises(ExecutorError, match=r"cuda:GPU-none.*cpu"):
        executor.start(replace(ticket, device=slot.device), slot)
    with pytest.raises(ExecutorError, match="cuda:GPU-none"):
        executor.start(replace(ticket, device=slot.device), executor.capacity()[0])


@pytest.mark.parametrize("attempt_id", ["../a1", "a/b", "", "a.b", "a\n", "x" * 129])
def test_an_id_that_could_name_another_file_is_refused(
    executor: Executor, ticket: AttemptTicket, attempt_id: str
) -> None:
    with pytest.raises(ExecutorError, match="is not 1 to 128 letters"):
        executor.log_path(attempt_id)
    with pytest.raises(ExecutorError, match="is not 1 to 128 letters"):
        replace(ticket, attempt_id=attempt_id)
