"""The exchange with agents: lost answers, late requests, strangers, hostile bodies."""

import json
from collections.abc import Iterator
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from search.agents.executors import AttemptTicket, Slot
from search.agents.executors.remote import RemoteExecutor
from search.agents.protocol import MOST_JSON_BYTES
from service.app import create_app
from service.auth.api_keys import create_key
from storage.fleet.bookings import Bookings
from storage.fleet.machines import Machines
from storage.records import LOCAL, AttemptState, BookingState, TrialState
from storage.repositories.attempts import Attempts
from tests.service.machines import MACHINE, SESSION, SLOTS, Machine
from tests.service.site import Lease, Site, now

NO_ORDERS = {"start": [], "end": []}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.close()


@pytest.fixture
def client(site: Site) -> Iterator[TestClient]:
    with TestClient(create_app(site.settings), base_url="http://localhost:8080") as client:
        yield client


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """For what leaves nothing behind."""
    site = Site(tmp_path_factory.mktemp("shared"))
    with TestClient(create_app(site.settings), base_url="http://localhost:8080") as client:
        yield client
    site.close()


class Floor:
    """A coordinator's executor over the site, with attempts that have rows."""

    def __init__(self, site: Site, owner: str = "one") -> None:
        self.site = site
        self.executor = RemoteExecutor(
            site.database, owner=owner, lease_seconds=30.0, logs=site.settings.logs_dir
        )

    def slot(self, name: str = "ada/cpu-0") -> Slot:
        return next(slot for slot in self.executor.capacity() if slot.name == name)

    def start(self, name: str = "ada/cpu-0", *, ahead: bool = False) -> Lease:
        slot = self.slot(name)
        study = self.site.study()
        self.site.run(study)
        self.site.trial(study, 0, state=TrialState.QUEUED if ahead else TrialState.RUNNING)
        state = AttemptState.ASSIGNED if ahead else AttemptState.RUNNING
        lease = self.site.lease(study, 0, state=state)
        assert self.book(ticket(lease), slot, ahead=ahead)
        self.executor.start(ticket(lease), slot)
        return lease

    def book(self, ticket: AttemptTicket, slot: Slot, *, ahead: bool = False) -> bool:
        with self.site.database.write() as session:
            return self.executor.book(session, ticket, slot, ahead=ahead)


def ticket(lease: Lease, *, attempt: str = "") -> AttemptTicket:
    nowhere = Path("/nonexistent")
    return AttemptTicket(
        attempt_id=attempt or lease.attempt,
        lease_seconds=30.0,
        device="cpu",
        data=None,
        cache=nowhere,
        lock_folder=nowhere,
        threads=1,
        log_fields={"trial": 0},
    )


def opens(client: TestClient, attempt: str, token: str) -> bool:
    """Whether a token is the attempt's: then it is told that there is no such file."""
    path = f"/v1/agents/{MACHINE}/attempts/{attempt}/artifacts/resume"
    status = client.get(path, headers={"Lease-Token": token}).status_code
    assert status in (404, 409)
    return status == 404


def booking_state(site: Site, attempt: str) -> BookingState | None:
    with site.database.read() as session:
        found = [one.state for one in Bookings(session).all() if one.attempt_id == attempt]
    return found[0] if found else None


def test_what_is_booked_ahead_is_offered_beside_the_attempt_that_has_the_place(
    client: TestClient, site: Site
) -> None:
    machine, floor = Machine(client), Floor(site)
    first = floor.start()
    assert [one["ahead"] for one in machine.poll()["start"]] == [False]
    second = floor.start(ahead=True)
    [offer] = machine.poll(first.attempt)["start"]
    assert (offer["attempt"], offer["place"], offer["ahead"]) == (second.attempt, "cpu-0", True)
    other = Floor(site, owner="another")
    assert [slot.name for slot in other.executor.capacity()] == ["ada/cpu-1"]
    machine.exit(first.attempt)
    # It follows there, and the place stays its coordinator's.
    assert [slot.name for slot in other.executor.capacity()] == ["ada/cpu-1"]
    with site.database.write() as session:
        assert Attempts(session).recall(second.attempt)
    orders = machine.poll(second.attempt)
    assert [one["attempt"] for one in orders["end"]] == [second.attempt]


def test_attempts_of_one_place_are_offered_in_the_order_in_which_they_follow(
    client: TestClient, site: Site
) -> None:
    machine, floor = Machine(client), Floor(site)
    booked = [floor.start(ahead=number > 0).attempt for number in range(6)]
    assert [offer["attempt"] for offer in machine.poll()["start"]] == booked


def test_an_attempt_is_handed_out_with_a_token_that_nobody_else_has(
    client: TestClient, site: Site
) -> None:
    machine, floor = Machine(client), Floor(site)
    lease = floor.start()
    [offer] = machine.poll()["start"]
    assert offer["attempt"] == lease.attempt
    assert (offer["device"], offer["threads"], offer["log_fields"]) == ("cpu", 1, {"trial": 0})
    assert opens(client, lease.attempt, offer["token"])
    assert not opens(client, lease.attempt, lease.token)
    assert (
        offer["token"].encode()
        not in Path(site.settings.database_url.removeprefix("sqlite:///")).read_bytes()
    )
    assert machine.poll(lease.attempt) == NO_ORDERS
    assert booking_state(site, lease.attempt) is BookingState.RUNNING


def test_an_offer_whose_answer_was_lost_is_made_again_and_voids_the_first(
    client: TestClient, site: Site
) -> None:
    machine, floor = Machine(client), Floor(site)
    lease = floor.start()
    lost, heard = (machine.poll()["start"][0]["token"] for _ in range(2))
    assert lost != heard
    assert not opens(client, lease.attempt, lost)
    assert opens(client, lease.attempt, heard)


def test_a_poll_that_arrives_late_or_twice_voids_nothing(client: TestClient, site: Site) -> None:
    machine, floor = Machine(client), Floor(site)
    lease = floor.start()
    [offer] = machine.poll(number=5)["start"]
    for number in (5, 4):
        late = machine.ask("poll", number=number, wait_seconds=0)
        assert late.status_code == 409
    assert opens(client, lease.attempt, offer["token"])


def test_an_end_is_told_once_however_often_the_machine_tells_it(
    client: TestClient, site: Site
) -> None:
    machine, floor = Machine(client), Floor(site)
    lease = floor.start()
    machine.poll()
    machine.poll(lease.attempt)
    for code in (0, 7):
        assert machine.exit(lease.attempt, returncode=code).status_code == 200
    [ended] = floor.executor.poll(5.0)
    assert (ended.attempt_id, ended.returncode, ended.detail) == (
        lease.attempt,
        0,
        "exited with code 0",
    )
    assert machine.exit(lease.attempt).status_code == 200
    assert floor.executor.poll(0.5) == []


def test_two_coordinators_never_have_the_same_place(client: TestClient, site: Site) -> None:
    machine, one, two = Machine(client), Floor(site, "one"), Floor(site, "two")
    seen = two.slot()
    lease = one.start()
    assert not two.book(ticket(lease, attempt="other"), seen)
    assert [slot.name for slot in two.executor.capacity()] == ["ada/cpu-1"]
    assert [slot.name for slot in one.executor.capacity()] == ["ada/cpu-0", "ada/cpu-1"]
    machine.poll()
    machine.exit(lease.attempt)
    assert two.executor.poll(0.3) == []
    assert [slot.name for slot in two.executor.capacity()] == ["ada/cpu-0", "ada/cpu-1"]
    two.start()
    assert [ended.attempt_id for ended in one.executor.poll(5.0)] == [lease.attempt]


def test_what_a_coordinator_left_at_work_is_taken_over_by_the_next(
    client: TestClient, site: Site
) -> None:
    machine, former, following = Machine(client), Floor(site, "one"), Floor(site, "two")
    lease, ended = former.start(), former.start("ada/cpu-1")
    machine.poll()
    machine.exit(ended.attempt)
    former.executor.close()
    assert former.executor.keeps(lease.attempt)
    assert following.executor.adopt(lease.attempt) == 0
    assert following.executor.adopt(ended.attempt) is None
    following.slot()
    machine.exit(lease.attempt)
    assert [one.attempt_id for one in following.executor.poll(5.0)] == [lease.attempt]


def test_leases_are_not_held_against_attempts_while_no_machine_is_heard(
    client: TestClient, site: Site
) -> None:
    machine, clock, polls = Machine(client), [0.0], 0
    executor = RemoteExecutor(
        site.database,
        owner="one",
        lease_seconds=30.0,
        logs=site.settings.logs_dir,
        clock=lambda: clock[0],
    )
    floor = Floor(site)
    floor.executor = executor
    lease = floor.start()
    running = {lease.attempt}

    def pass_seconds(seconds: int, *, heard: bool) -> None:
        nonlocal polls
        for _ in range(seconds // 5):
            clock[0] += 5
            polls += heard
            if heard:
                machine.poll(lease.attempt)
            executor.capacity()

    pass_seconds(10, heard=True)
    assert executor.unheard() == running
    pass_seconds(30, heard=True)
    assert executor.unheard() == set()
    # Where the API is away, none is heard; when it is back, all have a lease's time to speak.
    pass_seconds(120, heard=False)
    assert executor.unheard() == running
    pass_seconds(20, heard=True)
    assert executor.unheard() == running
    pass_seconds(20, heard=True)
    assert executor.unheard() == set()
    # Nobody waits for ever.
    pass_seconds(600, heard=False)
    assert executor.unheard() == set()


def test_a_machine_that_is_silent_for_a_lease_is_not_counted_until_it_asks(
    client: TestClient, site: Site
) -> None:
    machine = Machine(client)
    clock = [0.0]
    executor = RemoteExecutor(
        site.database,
        owner="one",
        lease_seconds=30.0,
        logs=site.settings.logs_dir,
        clock=lambda: clock[0],
    )
    assert len(executor.capacity()) == 2
    clock[0] += 31
    assert executor.capacity() == ()
    machine.poll()
    assert len(executor.capacity()) == 2


def test_a_coordinator_that_starts_doubts_a_machine_that_was_silent_long(
    client: TestClient, site: Site
) -> None:
    machine = Machine(client)
    with site.database.write() as session:
        Machines(session).join(
            MACHINE,
            name="ada",
            version=version("reflectory"),
            session=SESSION,
            slots=[],
            at=now() - timedelta(hours=1),
        )
    machine = Machine(client)
    with site.database.write() as session:
        Machines(session).poll(MACHINE, session=SESSION, number=1, at=now() - timedelta(hours=1))
    floor = Floor(site)
    assert floor.executor.capacity() == ()
    machine.number = 1
    machine.poll()
    assert len(floor.executor.capacity()) == 2


def test_a_machine_hears_what_to_end_until_it_says_that_it_heard(
    client: TestClient, site: Site
) -> None:
    machine, floor = Machine(client), Floor(site)
    lease = floor.start()
    machine.poll()
    floor.executor.cancel(lease.attempt, 9.0)
    assert floor.executor.poll(0.0) == []
    order = {"attempt": lease.attempt, "grace_seconds": 9.0}
    for _ in range(2):
        assert machine.poll(lease.attempt)["end"] == [order]
    assert machine.poll(lease.attempt, ending={lease.attempt: 9.0}) == NO_ORDERS
    floor.executor.cancel(lease.attempt, 0.0)
    floor.executor.cancel(lease.attempt, 5.0)
    assert floor.executor.poll(0.0) == []
    assert machine.poll(lease.attempt, ending={lease.attempt: 9.0})["end"] == [
        {"attempt": lease.attempt, "grace_seconds": 0.0}
    ]


def test_what_was_called_back_before_it_began_never_begins(client: TestClient, site: Site) -> None:
    machine, floor = Machine(client), Floor(site)
    lease = floor.start()
    floor.executor.cancel(lease.attempt, 0.0)
    assert floor.executor.poll(0.0) == []
    assert machine.poll() == NO_ORDERS
    [ended] = floor.executor.poll(5.0)
    assert "called back" in ended.detail


def test_a_machine_is_told_to_end_what_is_over_and_what_nobody_knows(
    client: TestClient, site: Site
) -> None:
    machine, floor = Machine(client), Floor(site)
    lease = floor.start()
    machine.poll()
    with site.database.write() as session:
        Attempts(session).end(lease.attempt, state=AttemptState.LOST, at=now())
    ended = {end["attempt"] for end in machine.poll(lease.attempt, "unheard-of")["end"]}
    assert ended == {lease.attempt, "unheard-of"}


def test_what_a_process_ran_is_lost_with_it_and_another_may_go_on(
    client: TestClient, site: Site
) -> None:
    machine, floor = Machine(client), Floor(site)
    running, offered = floor.start(), floor.start("ada/cpu-1")
    machine.poll()
    machine.poll(running.attempt)
    again = Machine(client, session="c" * 16)
    assert machine.ask("poll", number=99, wait_seconds=0).status_code == 409
    assert machine.exit(running.attempt).status_code == 409
    assert [offer["attempt"] for offer in again.poll()["start"]] == [offered.attempt]
    [ended] = floor.executor.poll(5.0)
    assert ended.attempt_id == running.attempt
    assert "does not have it" in ended.detail


def test_what_was_at_work_when_a_machines_process_was_killed_may_have_killed_it(
    client: TestClient, site: Site
) -> None:
    machine, floor = Machine(client), Floor(site)
    running, offered = floor.start(), floor.start("ada/cpu-1")
    machine.poll()
    machine.poll(running.attempt)
    again = Machine(client, session="c" * 16, was_killed=True)
    assert [offer["attempt"] for offer in again.poll()["start"]] == [offered.attempt]
    [ended] = floor.executor.poll(5.0)
    assert ended.attempt_id == running.attempt
    assert ended.detail == "died with its machine's worker"
    # A process that joins once more, after its line was cut, goes on with what it runs.
    again.poll(offered.attempt)
    Machine(client, session="c" * 16, was_killed=True)
    again.number = 0
    assert floor.executor.poll(0.5) == []


def test_a_machine_that_leaves_takes_no_more_and_goes_with_its_last_attempt(
    client: TestClient, site: Site
) -> None:
    machine, floor = Machine(client), Floor(site)
    running = floor.start()
    machine.poll()
    machine.poll(running.attempt)
    waiting = floor.start("ada/cpu-1")
    path = f"/v1/agents/{MACHINE}"
    assert client.delete(path, params={"session": SESSION}).status_code == 204
    assert [ended.attempt_id for ended in floor.executor.poll(5.0)] == [waiting.attempt]
    assert floor.executor.capacity() == ()
    assert machine.poll(running.attempt) == NO_ORDERS
    assert machine.exit(running.attempt).status_code == 200
    assert client.get("/v1/agents").json() == {"items": []}
    assert client.delete(path, params={"session": SESSION}).status_code == 409


def test_a_machine_of_another_version_is_refused_with_both(client: TestClient) -> None:
    answer = Machine(client, version="0.0.9").joined
    assert answer.status_code == 409
    assert "0.0.9" in answer.json()["detail"]
    assert version("reflectory") in answer.json()["detail"]


def test_two_machines_of_one_name_are_told_apart_and_one_joins_once(client: TestClient) -> None:
    names = [
        Machine(client, machine=machine).joined.json()["name"]
        for machine in (MACHINE, "d" * 16, MACHINE)
    ]
    assert names == ["ada", "ada-dddddd", "ada"]
    assert len(client.get("/v1/agents").json()["items"]) == 2


def test_a_key_for_machines_opens_their_doors_alone_and_no_other_key_does(site: Site) -> None:
    keys = {
        scope: create_key(site.database.of(LOCAL), name=scope, scopes=(scope,)).text
        for scope in ("work", "read", "write", "admin")
    }
    with TestClient(create_app(site.settings), base_url="http://localhost:8080") as client:
        for scope, key in keys.items():
            client.headers["Authorization"] = f"Bearer {key}"
            machine = Machine(client)
            expected = 200 if scope == "work" else 403
            assert machine.joined.status_code == expected, scope
            assert machine.ask("poll", number=1, wait_seconds=0).status_code == expected
            assert machine.exit("a").status_code == expected
            listed = client.get("/v1/agents").status_code
            assert listed == (200 if scope == "admin" else 403), scope
        client.headers["Authorization"] = f"Bearer {keys['work']}"
        for path in ("/v1/studies", "/v1/devices", "/v1/keys", "/", "/metrics"):
            assert client.get(path).status_code == 403, path
        client.headers["Authorization"] = f"Bearer {keys['admin']}"
        made = client.post("/v1/keys", json={"name": "a", "scopes": ["work"]})
        assert made.status_code == 422
        del client.headers["Authorization"]
        assert Machine(client).joined.status_code == 401


HOSTILE: list[dict[str, Any]] = [
    {"session": "x"},
    {"session": SESSION, "number": 0},
    {"session": SESSION, "number": 2**63},
    {"session": SESSION, "number": 1, "running": ["../../etc/passwd"]},
    {"session": SESSION, "number": 1, "running": ["a"] * 9000},
    {"session": SESSION, "number": 1, "ending": {"a": "NaN"}},
    {"session": SESSION, "number": 1, "wait_seconds": 1e9},
    {"session": SESSION, "number": 1, "more": 1},
]


@pytest.mark.parametrize("body", HOSTILE, ids=str)
def test_a_hostile_poll_is_refused(shared: TestClient, body: dict[str, Any]) -> None:
    assert shared.post(f"/v1/agents/{MACHINE}/poll", json=body).status_code == 422


@pytest.mark.parametrize(
    "given",
    [
        {"machine": "../x"},
        {"name": "a/b"},
        {"name": ""},
        {"slots": []},
        {"slots": [*SLOTS, {**SLOTS[0], "share": 2.0}]},
        {"slots": [{**SLOTS[0], "device": "cuda:GPU-1/../.."}]},
        {"slots": [{**SLOTS[0], "name": "a b"}]},
        {"slots": [SLOTS[0], SLOTS[0]]},
        {"slots": [SLOTS[0]] * 5000},
    ],
    ids=str,
)
def test_a_hostile_join_is_refused(shared: TestClient, given: dict[str, Any]) -> None:
    assert Machine(shared, **given).joined.status_code == 422
    assert shared.get("/v1/agents").json() == {"items": []}


def test_a_hostile_sync_is_refused(client: TestClient) -> None:
    machine = Machine(client)
    words = json.dumps({"session": SESSION, "items": []}).encode()
    whole = len(words).to_bytes(4, "big") + words
    log = {"kind": "log", "attempt": "a", "size": 4, "cut": 0}
    assert machine.say_bytes(whole).status_code == 200
    for body in (
        b"",
        b"\0\0\0",
        whole[:-1],
        whole + b"more",
        (2**32 - 1).to_bytes(4, "big") + words,
        (MOST_JSON_BYTES + 1).to_bytes(4, "big") + b" " * (MOST_JSON_BYTES + 1),
        len(words).to_bytes(4, "big") + b"[" * len(words),
    ):
        assert machine.say_bytes(body).status_code == 422, body[:20]
    for item in (
        {"kind": "unheard-of", "attempt": "a"},
        {"kind": "exit", "attempt": "../x", "detail": ""},
        {"kind": "epoch", "attempt": "a", "report": {"epoch": 1}},
        {"kind": "artifact", "attempt": "a", "role": "resume", "sha256": "x", "size": 0},
        {**log, "size": 2**30},
    ):
        assert machine.say(item, contents=[b"text"]).status_code == 422, item
    assert machine.say(log, contents=[b"tex"]).status_code == 422
    assert machine.say_bytes(b"x" * (10 << 20)).status_code == 413
