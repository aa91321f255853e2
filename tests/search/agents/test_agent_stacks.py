"""An agent whose slots have several attempts each, and a service that is only played."""

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from search.agents import agent, log_tail, outbox
from search.agents.agent import Agent, AgentFolders
from search.agents.agent_client import AgentLink, NoAnswer
from search.agents.protocol import End, Join, Joined, MachineSlot, Offer, Orders, Poll, Synced
from search.agents.slots.slot_processes import SlotProcesses
from search.agents.worker import DONE, TERMINATED
from search.training.jobs import TrainJob
from storage.endings import AttemptCause
from tests.patience import wait_while_it_moves
from tests.search.agents.slots.test_slot_processes import job
from tests.search.agents.slots.test_stacks import LONG

LEASE_SECONDS = 60.0


class Service:
    """What an agent is told, and what it was heard to say, by attempt."""

    def __init__(self) -> None:
        self.timeout = 1.0
        self.said: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
        self.held: defaultdict[str, list[float]] = defaultdict(list)
        self.refuses: Callable[[Mapping[str, Any]], bool] = lambda _item: False
        self.stops: dict[str, str] = {}
        self.is_away = False
        self.takes_no_words = False
        self._orders = Orders()
        self._told = threading.Condition()

    def order(self, *, start: Sequence[Offer] = (), end: Sequence[End] = ()) -> None:
        with self._told:
            self._orders = Orders(start=tuple(start), end=tuple(end))
            self._told.notify_all()

    def join(self, _body: Join) -> Joined:
        return Joined(name="played", lease_seconds=LEASE_SECONDS)

    def poll(self, body: Poll) -> Orders:
        self._check()
        with self._told:
            self._told.wait_for(lambda: self._orders.any, min(0.2, body.wait_seconds))
            orders, self._orders = self._orders, Orders()
            return orders

    def sync(self, body: bytes) -> Synced:
        self._check()
        if self.takes_no_words:
            raise NoAnswer("it is slow")
        length = int.from_bytes(body[:4], "big")
        told = json.loads(body[4 : 4 + length])
        refused = []
        for attempt, beat in told["beats"].items():
            self.held[attempt].append(beat["held_seconds"])
        for place, item in enumerate(told["items"]):
            if self.refuses(item):
                refused.append(
                    {"attempt": item["attempt"], "item": place, "why": "lease", "detail": "over"}
                )
            else:
                self.said[item["attempt"]].append(item)
        stop = {one: why for one, why in self.stops.items() if one in told["tokens"]}
        return Synced.model_validate(
            {"refused": refused, "stop": stop, "lease_seconds": LEASE_SECONDS}
        )

    def leave(self, _session: str) -> None:
        return

    def get_artifact(self, _attempt: str, _role: str, *, token: str) -> bytes | None:  # noqa: ARG002
        return None

    def kinds(self, attempt: str) -> list[str]:
        return [item["kind"] for item in self.said[attempt]]

    def completion_of(self, attempt: str) -> Mapping[str, Any]:
        (end,) = (item for item in self.said[attempt] if item["kind"] == "end")
        return end["completion"]

    def exit_of(self, attempt: str) -> Mapping[str, Any]:
        wait_while_it_moves(
            lambda: "exit" in self.kinds(attempt),
            what=f"the exit of {attempt}",
            moved=lambda: sum(map(len, self.said.values())),
        )
        return self.said[attempt][-1]

    def _check(self) -> None:
        if self.is_away:
            raise NoAnswer("it is away")


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def stop() -> threading.Event:
    return threading.Event()


@pytest.fixture
def at_work(service: Service, stop: threading.Event, tmp_path: Path) -> Iterator[threading.Thread]:
    """An agent with one slot, which is told to stop at the end."""
    slot = MachineSlot(name="cpu-0", device="cpu", model="a processor", share=1.0)
    join = Join(machine="0" * 16, session="1" * 16, name="played", version="0", slots=(slot,))
    folders = AgentFolders(data=None, cache=tmp_path / "cache", locks=tmp_path / "locks")
    slots = partial(SlotProcesses, logs=tmp_path / "logs")
    ours = Agent(cast(AgentLink, service), join, slots, folders=folders)
    thread = threading.Thread(target=ours.run, args=(stop,), kwargs={"joined": lambda _name: None})
    thread.start()
    yield thread
    stop.set()
    thread.join()


def offer(attempt: str, at: int, of: TrainJob) -> Offer:
    return Offer(
        attempt=attempt,
        token=f"token-of-{attempt}",
        lease_seconds=LEASE_SECONDS,
        place=f"cpu-0+{at}" if at else "cpu-0",
        device="cpu",
        threads=1,
        tenant="ours",
        together=True,
        job=of.model_dump(mode="json"),
    )


def wait_for_epochs(service: Service, *attempts: str) -> None:
    wait_while_it_moves(
        lambda: all("epoch" in service.kinds(one) for one in attempts), what="epochs"
    )


@pytest.mark.usefixtures("at_work")
def test_one_whose_words_are_refused_or_who_is_ended_costs_the_others_nothing(
    service: Service,
) -> None:
    service.refuses = lambda item: item["attempt"] == "refused" and item["kind"] == "epoch"
    offers = [
        offer("refused", 0, job(seed=1, epochs=LONG)),
        offer("ended", 1, job(seed=2, epochs=LONG)),
        offer("stopped", 2, job(seed=3, epochs=LONG)),
        offer("complete", 3, job(seed=4, epochs=30)),
    ]
    service.order(start=offers)
    refused = service.exit_of("refused")
    assert (refused["cause"], refused["detail"]) == (AttemptCause.LOST, "its lease was over")
    wait_for_epochs(service, "ended", "stopped", "complete")
    service.order(end=[End(attempt="ended", grace_seconds=0.0)])
    assert service.exit_of("ended")["returncode"] == TERMINATED
    assert "artifact" in service.kinds("ended")
    service.stops["stopped"] = "enough"
    assert service.exit_of("stopped")["returncode"] == DONE
    assert service.completion_of("stopped")["outcome"] == "stopped"
    assert service.exit_of("complete")["returncode"] == DONE
    completion = service.completion_of("complete")
    assert (completion["outcome"], completion["epochs_trained"]) == ("complete", 30)
    assert not {"end", "epoch"} & set(service.kinds("refused"))


def test_a_machine_that_stops_has_all_store_where_they_are(
    service: Service, stop: threading.Event, at_work: threading.Thread
) -> None:
    """Also one whose turn has not come, of which there is nothing to store."""
    service.order(
        start=[
            offer("one", 0, job(seed=1, epochs=LONG)),
            offer("two", 1, job(seed=2, epochs=LONG)),
            offer("waits", 2, job(kind=1, epochs=LONG)),
        ]
    )
    wait_for_epochs(service, "one", "two")
    stop.set()
    at_work.join()
    for attempt in ("one", "two"):
        assert service.exit_of(attempt)["cause"] == AttemptCause.MACHINE_STOPPED
        stored = [item for item in service.said[attempt] if item["kind"] == "artifact"]
        assert stored[-1]["role"] == "resume"
    assert "epoch" not in service.kinds("waits")
    assert service.exit_of("waits")["cause"] == AttemptCause.MACHINE_STOPPED


@pytest.mark.usefixtures("at_work")
def test_all_are_ended_when_the_service_is_away_for_too_long(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = job(seed=1, epochs=LONG).model_copy(update={"waits_at": ()})
    service.order(start=[offer("one", 0, of), offer("two", 1, of)])
    wait_for_epochs(service, "one", "two")
    service.is_away = True
    monkeypatch.setattr(agent, "GO_ON_SECONDS", 1.0)
    threading.Event().wait(4.0)
    monkeypatch.undo()
    service.is_away = False
    for attempt in ("one", "two"):
        assert service.exit_of(attempt)["returncode"] != DONE


@pytest.mark.usefixtures("at_work")
def test_one_that_waits_for_its_turn_is_known_to_be_alive(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.search.agents.test_agent_stacks.LEASE_SECONDS", 3.0)
    service.order(
        start=[
            offer("first", 0, job(seed=1, epochs=LONG)),
            offer("waits", 1, job(kind=1, epochs=2)),
        ]
    )
    wait_while_it_moves(lambda: service.held["waits"], what="a sign of life")
    assert set(service.held["waits"]) == {0.0}
    service.order(end=[End(attempt="first", grace_seconds=0.0)])
    assert service.exit_of("waits")["returncode"] == DONE


@pytest.mark.usefixtures("at_work")
def test_what_waits_for_room_is_alive_and_heard_once_there_is_some(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one state of a large network leaves none for what others say, logs among it."""
    monkeypatch.setattr(outbox, "MOST_WAITING_BYTES", 1)
    monkeypatch.setattr(log_tail, "EVERY_SECONDS", 0.1)
    monkeypatch.setattr("tests.search.agents.test_agent_stacks.LEASE_SECONDS", 3.0)
    of = job(seed=1, epochs=LONG).model_copy(update={"waits_at": ()})
    service.order(start=[offer("one", 0, of), offer("two", 1, job(seed=2, epochs=LONG))])
    wait_for_epochs(service, "one", "two")
    service.takes_no_words = True
    threading.Event().wait(3.0)  # Logs have grown meanwhile, too.
    service.takes_no_words = False
    said = {one: len(service.said[one]) for one in ("one", "two")}
    held = {one: len(service.held[one]) for one in ("one", "two")}
    wait_while_it_moves(
        lambda: all(len(service.said[one]) > said[one] + 2 for one in said), what="words of both"
    )
    assert any(len(service.held[one]) > held[one] for one in held)
    service.order(end=[End(attempt=one, grace_seconds=0.0) for one in said])
    for attempt in said:
        assert service.exit_of(attempt)["kind"] == "exit"


@pytest.mark.usefixtures("at_work")
def test_an_epoch_that_takes_longer_than_a_lease_is_known_to_be_alive(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its state is stored all the time meanwhile, which renews no lease."""
    monkeypatch.setattr("tests.search.agents.test_agent_stacks.LEASE_SECONDS", 9.0)
    endless = job(epochs=1)
    training = endless.trial.training.model_copy(update={"epoch_updates": 10**6})
    trial = endless.trial.model_copy(update={"training": training})
    service.order(start=[offer("long", 0, endless.model_copy(update={"trial": trial}))])
    wait_while_it_moves(lambda: "artifact" in service.kinds("long"), what="its state")
    before = len(service.held["long"])
    wait_while_it_moves(lambda: len(service.held["long"]) > before, what="a sign of life")
    assert "epoch" not in service.kinds("long")
    service.order(end=[End(attempt="long", grace_seconds=0.0)])
    assert service.exit_of("long")
