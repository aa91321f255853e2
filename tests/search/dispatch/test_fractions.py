"""Shares of devices: a trial runs only where it has as much of the device as it wants."""

import time
from collections.abc import Sequence, Set
from pathlib import Path

import pytest
from pydantic import ValidationError
from sqlalchemy.orm import Session

from search.agents.executors import AttemptTicket, Exit, Slot
from search.dispatch.coordinator import Coordinator, Folders
from search.studies.spec import Resources
from storage.records import StudyState
from storage.repositories.studies import Studies
from tests.service.site import Site

CORE = Slot("cpu-0", "cpu", "a CPU", 1.0)
QUARTERS = tuple(Slot(f"gpu-0-{part}", "cuda:GPU-0", "a GPU", 0.25) for part in range(2))
HALF = Slot("gpu-1-0", "cuda:GPU-1", "a GPU", 0.5)


class Machine:
    """Slots on which attempts begin and never end."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self.slots = slots
        self.begun: list[str] = []

    def capacity(self) -> Sequence[Slot]:
        return self.slots

    def reserve(self, attempt_id: str, slot: Slot) -> bool:
        return bool(attempt_id) and slot in self.slots

    def book(
        self,
        session: Session,
        ticket: AttemptTicket,
        slot: Slot,
        *,
        ahead: bool = False,  # noqa: ARG002
    ) -> bool:
        return session.is_active and bool(ticket.attempt_id) and slot in self.slots

    def adopt(self, attempt_id: str) -> int | None:
        return None if attempt_id else 0

    def keeps(self, attempt_id: str) -> bool:
        return not attempt_id

    def unheard(self) -> Set[str]:
        return set()

    def start(self, ticket: AttemptTicket, slot: Slot) -> None:
        assert ticket.device == slot.device
        self.begun.append(slot.name)

    def cancel(self, attempt_id: str, grace_seconds: float) -> None:
        """Nothing ends here."""

    def poll(self, timeout_seconds: float) -> Sequence[Exit]:
        assert timeout_seconds >= 0
        return ()

    def log_path(self, attempt_id: str) -> Path:
        return Path(attempt_id)

    def close(self) -> None:
        """Nothing to give back."""


def coordinator(site: Site, machine: Machine, *, lease_seconds: float = 30.0) -> Coordinator:
    folder = site.settings.data_dir
    return Coordinator(
        site.database,
        machine,
        optuna_url=site.settings.optuna_url,
        owner="test",
        folders=Folders(
            data=None, cache=folder / "cache", locks=folder / "locks", alive=folder / "alive"
        ),
        lease_seconds=lease_seconds,
    )


def outcome(site: Site, slots: Sequence[Slot], **resources: object) -> tuple[str | None, list[str]]:
    """Why the study failed, if it did, and on which slots its first attempts began."""
    machine = Machine(slots)
    study = site.study(resources=resources)
    running = coordinator(site, machine)
    deadline = time.monotonic() + 60
    while True:
        running.round()
        with site.database.read() as session:
            found = Studies(session).get(study.id)
        if machine.begun or found.state == StudyState.FAILED:
            break
        assert time.monotonic() < deadline, "nothing has begun"
    assert (found.state == StudyState.FAILED) == (found.state_reason is not None)
    # The next coordinator would go on with it.
    site.finish(study)
    return found.state_reason, machine.begun


def test_a_trial_waits_for_a_slot_that_is_large_enough(site: Site) -> None:
    assert outcome(site, [*QUARTERS, HALF, CORE], fraction=0.5) == (None, ["gpu-1-0"])
    assert outcome(site, [*QUARTERS, CORE], fraction=0.5) == (None, ["cpu-0"])
    assert outcome(site, [*QUARTERS, HALF, CORE]) == (None, ["gpu-0-0"])
    assert outcome(site, [*QUARTERS], device="cuda", fraction=0.25) == (None, ["gpu-0-0"])


def test_a_study_whose_share_no_slot_is_fails_with_the_largest_there_is(site: Site) -> None:
    reason, begun = outcome(site, [*QUARTERS, HALF, CORE], device="cuda", fraction=0.75)
    assert reason == "no slot here is resources.fraction 0.75 of a device; the largest is 0.5"
    assert begun == []
    reason, _ = outcome(site, [CORE], device="cuda", fraction=0.5)
    assert reason == "no slot here serves resources.device 'cuda'"


@pytest.mark.parametrize("fraction", [0, 1.01, -0.5, "half"])
def test_a_share_is_more_than_nothing_and_at_most_a_device(fraction: object) -> None:
    with pytest.raises(ValidationError):
        Resources.model_validate({"fraction": fraction})
