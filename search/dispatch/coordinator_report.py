"""What a coordinator tells of itself in its row: for `/v1/devices`, `/metrics` and `/readyz`."""

import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Literal, final

from pydantic import BaseModel

from search.agents.executors import Slot
from search.linux import boot_id
from search.measuring.measurement_lock import is_held_alone, lock_folder
from search.running import AskHistogram, AskTimes
from storage.engine import Database
from storage.fleet.coordinators import CoordinatorRecord, Coordinators, SlotRecord
from storage.fleet.machines import place_of

CLAIM_LEASES = 1.5
"""A claim outlasts a lease, so that a busy coordinator does not lose its studies to another. One
that was not seen for as long counts as gone."""

LockState = Literal["waiting", "measuring"]


class CoordinatorFigures(BaseModel):
    """A coordinator's figures. What one of another version says beside them is left out."""

    asks: dict[str, AskHistogram] = {}
    """By the kind of sampler, since the coordinator started."""
    asks_in_progress: int = 0
    exchanges_waiting: int = 0
    """Studies whose sampler waits until those of other studies have thought."""
    boot: str = ""
    """The start of its machine, by the kernel's id."""
    lanes: dict[str, LockState] = {}
    """The measuring slots with a job: whether it has the device alone, or waits for batches."""


@final
class CoordinatorReport:
    """Writes one coordinator's row."""

    def __init__(self, *, owner: str, lock_files: Path, beat_seconds: float) -> None:
        """`lock_files` is the folder of the measurement locks of this machine.

        The row says every `beat_seconds` that the coordinator lives, where nothing else is new.
        """
        self._owner = owner
        self._lock_files = lock_files
        self._beat_seconds = beat_seconds
        self._written: CoordinatorRecord | None = None
        self._written_at = 0.0
        """By the clock of `time.monotonic`."""
        self.started_at = datetime.now(UTC)

    def write(
        self,
        database: Database,
        asks: AskTimes,
        *,
        slots: Sequence[Slot],
        measuring_slots: Sequence[Slot],
        exchanges_waiting: int,
        taken: Collection[str],
    ) -> None:
        """Write what is new, or that the coordinator lives, where that is due.

        `taken` names the slots with a job on them.
        """
        figures = CoordinatorFigures(
            asks=asks.histograms(),
            asks_in_progress=asks.in_progress,
            exchanges_waiting=exchanges_waiting,
            boot=boot_id(),
            lanes={
                slot.name: "measuring"
                # The locks of other machines are theirs: there, a job counts for the measuring.
                if slot.machine or is_held_alone(lock_folder(self._lock_files, slot.device))
                else "waiting"
                for slot in measuring_slots
                if slot.name in taken
            },
        )
        record = CoordinatorRecord(
            owner=self._owner,
            slots=tuple(_record(slot) for slot in slots),
            measuring_slots=tuple(_record(slot) for slot in measuring_slots),
            figures=figures.model_dump(mode="json"),
            started_at=self.started_at,
            seen_at=datetime.now(UTC),
        )
        now = time.monotonic()
        known = self._written and replace(self._written, seen_at=record.seen_at)
        if record == known and now - self._written_at < self._beat_seconds:
            return
        with database.write() as session:
            Coordinators(session).report(record)
        self._written, self._written_at = record, now

    def former_was_killed(self, database: Database) -> bool:
        """Whether a coordinator of our name ended without a word since this machine started."""
        with database.read() as session:
            former = Coordinators(session).find(self._owner)
        if former is None:
            return False
        boot = CoordinatorFigures.model_validate(former.figures).boot
        return bool(boot) and boot == boot_id()

    def remove(self, database: Database) -> None:
        """Tell that it stops."""
        with database.write() as session:
            Coordinators(session).remove(self._owner)


@lru_cache(maxsize=8192)
def _record(slot: Slot) -> SlotRecord:
    return place_of(SlotRecord, vars(slot))
