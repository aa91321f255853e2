"""Priorities between studies: who has the one slot, and how that changes while they run."""

from collections.abc import Generator
from datetime import datetime
from typing import Any

import pytest

from tests.service.running import Server, wait_until

SMALL: dict[str, Any] = {
    "task": {"kind": "digits"},
    "architectures": ["rnn"],
    "parametrizations": ["dense"],
    "space": {"hidden_size": {"low": 8, "high": 24}, "batch_size": 32},
    "objectives": ["quality", "parameters"],
    "sampler": {"kind": "random"},
}
# More than any test waits for: on a busy machine dozens are trained before another study begins.
MANY = {**SMALL, "budget": {"trials": 1000, "epochs": 2}}
FEW = {**SMALL, "budget": {"trials": 8, "epochs": 2}}


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    """One with a single slot."""
    running = Server(tmp_path_factory.mktemp("priorities") / "data", workers=1)
    yield running.start()
    running.close()


def change(server: Server, study_id: str, **change: Any) -> Any:
    return server.http.patch(f"/v1/studies/{study_id}", json=change)


def starts(server: Server, study_id: str) -> list[datetime]:
    """When each trial of a study began."""
    found = [trial["attempts"] for trial in server.trials(study_id)]
    return sorted(datetime.fromisoformat(own[0]["started_at"]) for own in found if own)


def between(server: Server, study_id: str, first: datetime, last: datetime) -> int:
    """How many trials of a study began after one moment and before another."""
    return sum(first < at < last for at in starts(server, study_id))


def trained(server: Server, study_id: str, trials: int) -> None:
    wait_until(
        lambda: server.study(study_id)["progress"]["trials"]["complete"] >= trials,
        what=f"{trials} trials of {study_id}",
    )


@pytest.mark.slow
def test_a_study_of_a_higher_priority_has_the_slot_until_it_is_done(server: Server) -> None:
    low = server.submit(MANY)
    trained(server, low, 2)
    high = server.submit({**FEW, "priority": 5})
    assert server.wait(high)["state"] == "finished"
    own = starts(server, high)
    # Nothing is kept free for it: while it is being drawn from, the other may start one.
    assert between(server, low, own[0], own[-1]) <= 1
    before = server.study(low)["progress"]["trials"]["complete"]
    trained(server, low, before + 2)
    assert between(server, low, own[-1], max(starts(server, low))) >= 1
    lasting = server.trials(low)
    assert all(len(trial["attempts"]) <= 1 for trial in lasting), "one was ended for the other"


@pytest.mark.slow
def test_equal_studies_share_and_a_change_counts_from_the_next_slot_on(server: Server) -> None:
    one, other = server.submit(MANY), server.submit({**MANY, "seed": 1})
    trained(server, one, 6)
    trained(server, other, 6)
    begun = max(starts(server, one)[0], starts(server, other)[0])
    now = max(*starts(server, one), *starts(server, other))
    shared = [between(server, study, begun, now) for study in (one, other)]
    assert max(shared) - min(shared) <= 3, shared

    answer = change(server, other, priority=7)
    assert (answer.status_code, answer.json()["spec"]["priority"]) == (200, 7)
    changed = max(*starts(server, one), *starts(server, other))
    before = server.study(other)["progress"]["trials"]["complete"]
    trained(server, other, before + 8)
    last = starts(server, other)[-1]
    assert between(server, other, changed, last) >= 6
    assert between(server, one, changed, last) <= 2

    assert change(server, other, priority=-1).status_code == 200
    passed = server.study(one)["progress"]["trials"]["complete"]
    trained(server, one, passed + 6)


def test_what_a_change_of_priority_tells_and_refuses(server: Server) -> None:
    study = server.submit({**SMALL, "budget": {"trials": 2, "epochs": 1}, "priority": -3})
    assert server.study(study)["spec"]["priority"] == -3
    server.wait(study)
    for body, path in (
        ({}, ""),
        ({"priority": 101}, "priority"),
        ({"priority": "high"}, "priority"),
        # All of it, or nothing.
        ({"priority": 4, "budget": {"epochs": 9}}, "budget.epochs"),
    ):
        refused = server.http.patch(f"/v1/studies/{study}", json=body)
        assert refused.status_code == 422, body
        assert [fault["path"] for fault in refused.json()["errors"]] == [path]
    assert server.study(study)["spec"]["priority"] == -3
    assert change(server, "none", priority=1).status_code == 404

    for _ in range(2):
        assert change(server, study, priority=4).json()["state"] == "finished"
    both = change(server, study, priority=6, budget={"trials": 3}).json()["spec"]
    assert (both["priority"], both["budget"]["trials"]) == (6, 3)
    server.wait(study)
    events = server.http.get(f"/v1/studies/{study}/events").text
    assert events.count("event: priority") == 2
    page = server.http.get(f"/studies/{study}").text
    assert "<dt>Priority</dt><dd>6</dd>" in page
