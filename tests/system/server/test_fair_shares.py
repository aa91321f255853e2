"""Two tenants on one real server: a thousand trials of one keep the other waiting for one."""

from collections.abc import Generator, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from search.studies.named_trials import NamedTrial, enqueue
from search.studies.spec import StudySpec
from search.studies.submission import submit
from search.tasks import DataSources
from service.auth.api_keys import create_key
from storage.accounts.quotas import Quotas
from storage.engine import Database
from storage.records import AttemptKind, AttemptRecord
from storage.repositories.attempts import Attempts
from storage.repositories.commands import Commands
from storage.repositories.trials import Trials
from tests.service.running import Server, wait_until

MANY, FEW = "many", "few"
SLOTS = 2

# Trials that take longer than what a study needs before its first one: a claim, its data, an ask.
SPEC: dict[str, Any] = {
    "task": {"kind": "digits"},
    "architectures": ["rnn"],
    "parametrizations": ["dense"],
    "space": {"hidden_size": {"low": 8, "high": 24}, "batch_size": 32},
    "objectives": ["quality", "parameters"],
    "sampler": {"kind": "random"},
}


class Two:
    """A server with a key of each tenant, and its database."""

    def __init__(self, folder: Path) -> None:
        self.server = Server(folder / "data", workers=SLOTS)
        self.server.data_dir.mkdir()
        self.database = Database(f"sqlite:///{self.server.data_dir / 'reflectory.db'}")
        self.database.migrate()
        self._keys = {
            tenant: create_key(self.database.of(tenant), name=tenant, scopes=("write",)).text
            for tenant in (MANY, FEW)
        }

    def act_as(self, tenant: str) -> Server:
        """The server, asked with the tenant's key."""
        self.server.http.headers["Authorization"] = f"Bearer {self._keys[tenant]}"
        return self.server

    def attempts(self, study_id: str, *kinds: AttemptKind) -> list[AttemptRecord]:
        with self.database.read() as session:
            found = [Attempts(session).of_study(study_id, kind) for kind in kinds]
        return sorted((one for own in found for one in own), key=lambda one: one.started_at)

    def starts(self, study_id: str) -> list[datetime]:
        """When its trials began, in their order."""
        return [attempt.started_at for attempt in self.attempts(study_id, AttemptKind.TRAIN)]


@pytest.fixture
def two(tmp_path: Path) -> Generator[Two]:
    made = Two(tmp_path)
    yield made
    made.server.close()
    made.database.dispose()


@pytest.mark.slow
def test_the_other_tenants_first_trial_waits_for_one_trial_and_no_slot_idles(two: Two) -> None:
    ours = two.database.of(MANY)
    spec = StudySpec.model_validate({**SPEC, "budget": {"trials": 1010, "epochs": 25}})
    many = submit(ours, spec, sources=DataSources(cache=two.server.data_dir / "cache")).id
    named = NamedTrial(architecture="rnn", parametrization="dense")
    first = enqueue(ours, many, named)
    with ours.write() as session:
        # As `enqueue` leaves them, in a moment.
        for number in range(999):
            Commands(session).add(replace(first, id=f"{first.id}-{number}"))
    with two.database.read() as session:
        assert Quotas(session).used("queued_trials", MANY) == 1000
    two.server.start()
    wait_until(lambda: len(two.starts(many)) > 2 * SLOTS, what="trials of the first tenant")

    server = two.act_as(FEW)
    few = server.submit({**SPEC, "budget": {"trials": 4, "epochs": 25}})
    server.wait(few, seconds=600)
    made = datetime.fromisoformat(server.study(few)["created_at"])
    own = two.starts(few)
    with two.database.read() as session:
        ready = Trials(session).get(few, 0).created_at

    def of_the_others(first: datetime, last: datetime) -> int:
        return sum(first < at < last for at in two.starts(many))

    assert of_the_others(ready, own[0]) <= SLOTS
    assert of_the_others(made, own[0]) <= SLOTS + 6
    # From then on they share: trials of both take about as long.
    assert of_the_others(own[0], own[-1]) <= 2 * len(own) + SLOTS
    wait_until(lambda: two.starts(many)[-1] > own[-1], what="a slot that the first tenant has back")
    with two.database.read() as session:
        waiting = Quotas(session).used("queued_trials", MANY)
    assert waiting > 500, "there was work all the while"
    # No slot waits for as long as a trial takes.
    for end, start, slot in idle(two, many, few):
        meanwhile = [
            one.id
            for one in everything(two, many, few, kinds=(AttemptKind.TRAIN,))
            if one.slot != slot and one.ended_at and end <= one.started_at and one.ended_at <= start
        ]
        assert not meanwhile, f"{slot} idled from {end} to {start}"


def everything(
    two: Two,
    *studies: str,
    kinds: Sequence[AttemptKind] = (AttemptKind.PREPARE, AttemptKind.TRAIN),
) -> list[AttemptRecord]:
    """All that ran on slots, in the order of the starts."""
    found = [attempt for study in studies for attempt in two.attempts(study, *kinds)]
    return sorted(found, key=lambda one: one.started_at)


def idle(two: Two, *studies: str) -> list[tuple[datetime, datetime, str]]:
    """The pauses of each slot, from the end of an attempt to the start of the next."""
    by_slot: dict[str, list[AttemptRecord]] = {}
    for attempt in everything(two, *studies):
        by_slot.setdefault(attempt.slot, []).append(attempt)
    assert len(by_slot) == SLOTS
    return [
        (one.ended_at, following.started_at, slot)
        for slot, attempts in by_slot.items()
        for one, following in pairwise(attempts)
        if one.ended_at is not None
    ]
