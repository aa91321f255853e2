"""Rows with seeds as ordinary studies of a server: submitted, followed, and read when they end."""

import math
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from importlib.metadata import version
from pathlib import Path
from typing import Any

from search.documents.papers import Claim, RowEntry
from search.papers import SEARCHED
from search.papers.cells import Cell, digest_of, document_for
from search.papers.verdicts import is_decided
from service.api.studies.schemas import StudyDocument
from service.api.trials.schemas import EpochDocument, TrialDocument
from service.client import Client, Refused
from service.commands.reproduction.curves import curve_of
from storage.records import TrialState

_POLL_SECONDS = (1.0, 15.0)
"""Between two questions about the studies that are open: at least, and at most."""
_POLL_SHARE = 1 / 30
"""The same, as a share of the time since the last one began or ended: an end is seen so late."""
_SECONDS_AN_HOUR = 3600
_FAILED = (TrialState.FAILED, TrialState.INFEASIBLE)


@dataclass(frozen=True)
class Plan:
    """A cell that is to be trained."""

    table: str
    row: RowEntry
    seed: int
    document: Mapping[str, Any]
    digest: str

    @property
    def name(self) -> str:
        """The study's, by which another call finds it."""
        return f"{self.document['name']}, {self.digest}"


def plans(
    table: str,
    rows: Sequence[RowEntry],
    *,
    seeds: int,
    done: Iterable[Cell],
    until_decided: bool = False,
) -> Sequence[Plan]:
    """What is left to be trained of some rows, the cheapest row first.

    Args:
        table: the table's name.
        rows: its rows; those whose printed number cannot be reached are left out. Where nothing is
            printed, what is measured stands alone.
        seeds: how many of each, from 0.
        done: cells that are known.
        until_decided: whether a seed is done that reaches what is claimed before its end.
    """
    claims = {row.key: row.claim for row in rows} if until_decided else {}
    known = {
        (cell.table, cell.row, cell.seed, cell.digest)
        for cell in done
        if not cell.unfinished or is_decided(claims.get(cell.row), cell.best_validation)
    }
    found: list[Plan] = []
    trained = [row for row in rows if row.unreachable is None or row.claim is None]
    for row in sorted(trained, key=lambda row: row.predicted_seconds):
        for seed in range(seeds):
            document = document_for(row, seed)
            digest = digest_of(document)
            if (table, row.key, seed, digest) not in known:
                found.append(Plan(table, row, seed, document, digest))
    return found


@dataclass
class Reproduction:
    """A call of `reproduce`: what it has used, and what came of it."""

    client: Client
    budget_seconds: float | None
    """Of device time; None: any."""
    finished: Callable[[Plan, Cell], None]
    """Called with each cell as it ends, and with those that are paused before."""
    until_decided: bool = False
    """Whether a training is paused once it reaches what is claimed."""
    refused: dict[str, str] = field(default_factory=dict[str, str])
    """Rows that the server does not take, by key, and why: their data are missing."""
    lost: dict[str, str] = field(default_factory=dict[str, str])
    """Studies that ended without a result, by name, and what to do."""
    paused: list[str] = field(default_factory=list[str])
    """Names of the studies that the end of the budget paused."""
    used_seconds: float = 0.0
    _models: dict[str, str] = field(default_factory=dict[str, str])
    """Of machines by name: the models of their devices."""

    def run(self, todo: Sequence[Plan]) -> None:
        """Train what is to be trained until it is done or the budget is used up.

        As many studies are open as the server has slots, and one more. Those of an earlier call
        are taken up where they are.
        """
        known = {study.name: study for study in self.client.studies()} if todo else {}
        waiting, opened = list(todo), dict[str, _Open]()
        changed = time.monotonic()
        while waiting or opened:
            before = set(opened)
            width = 1 + self._slots()
            while waiting and len(opened) < width and not self._is_over(opened.values()):
                plan = waiting.pop(0)
                study = self._begun(plan, known.get(plan.name))
                if study is not None:
                    opened[plan.name] = _Open(plan, study, before=_seconds(study))
            for name, one in list(opened.items()):
                one.study = self.client.study(one.study.id)
                if one.study.ended:
                    del opened[name]
                    self.used_seconds += one.used
                    self._end(one)
                elif self.until_decided and self._is_decided(one):
                    del opened[name]
                    self._pause(one)
            if self._is_over(opened.values()):
                for name, one in opened.items():
                    self._pause(one)
                    self.paused.append(name)
                return
            if set(opened) != before:
                changed = time.monotonic()
            if opened:
                time.sleep(_pause_after(time.monotonic() - changed))

    def _slots(self) -> int:
        """How many there are now: machines join a server that is young."""
        devices = self.client.devices()
        self._models |= {device.machine: device.model for device in devices}
        return sum(len(device.slots) for device in devices)

    def _is_over(self, opened: Iterable["_Open"]) -> bool:
        if self.budget_seconds is None:
            return False
        return self.used_seconds + sum(one.used for one in opened) >= self.budget_seconds

    def _begun(self, plan: Plan, known: StudyDocument | None) -> StudyDocument | None:
        if plan.row.key in self.refused:
            return None
        if known is not None:
            return self.client.resume(known.id) if known.state == "paused" else known
        document = {**plan.document, "name": plan.name}
        key = f"reproduce-{plan.table}-{plan.seed}-{plan.digest}"
        try:
            return self.client.submit(document, idempotency_key=key)
        except Refused as error:
            if error.problem.status != HTTPStatus.UNPROCESSABLE_ENTITY:
                raise
            self.refused[plan.row.key] = "; ".join(error.problem.sentences()[1:]) or str(error)
            return None

    def _end(self, one: "_Open") -> None:
        """Keep what a study that ended came to; one that somebody cancelled came to nothing."""
        found = self._best(one.study.id, one.plan.row)
        if found is None or found.outcome not in (TrialState.COMPLETE, *_FAILED):
            self.lost[one.plan.name] = (
                f"study {one.study.id} is {one.study.state} and has no result; delete it to have "
                "it trained anew"
            )
            return
        self._keep(one, found, unfinished=False)

    def _keep(self, one: "_Open", found: TrialDocument, *, unfinished: bool) -> None:
        plan, row = one.plan, one.plan.row
        epochs = plan.document["budget"]["epochs"]
        machines = {self._model_of(attempt.machine) for attempt in found.attempts}
        trained = self.client.metrics(one.study.id, found.number)
        is_failure = found.test_quality is None and not unfinished
        is_search = row.system == SEARCHED
        cell = Cell(
            table=plan.table,
            row=row.key,
            seed=plan.seed,
            digest=plan.digest,
            value=found.test_quality,
            reason=found.reason if is_failure else None,
            unfinished=unfinished,
            best_validation=_best_validation(row.claim, trained) if unfinished else None,
            updates=round(row.updates * found.epochs_trained / epochs),
            epochs=found.epochs_trained,
            parameters=found.values.parameters,
            network=f"{found.architecture} × {found.parametrization}" if is_search else None,
            trainings=round(one.study.progress.epochs_trained / epochs, 1) if is_search else None,
            seconds=round(_seconds(one.study), 1),
            machine=", ".join(sorted(machines)),
            commit=_commit(),
            version=version("reflectory"),
            study=one.study.id,
            curve=curve_of(trained, row.updates / epochs),
        )
        self.finished(plan, cell)

    def _best(self, study_id: str, row: RowEntry) -> TrialDocument | None:
        """The trial that validation chooses; the first one where none is complete.

        Of equal qualities, which validation data of ten samples have often, the loss decides.
        """
        trials = list(self.client.trials(study_id))
        sign = -1 if row.direction == "minimize" else 1
        qualities = {
            trial.number: sign * trial.values.quality
            for trial in trials
            if trial.outcome is TrialState.COMPLETE and trial.values.quality is not None
        }
        if not qualities:
            return next(iter(trials), None)
        best = max(qualities.values())
        chosen = [trial for trial in trials if qualities.get(trial.number) == best]
        if len(chosen) == 1:
            return chosen[0]
        return min(chosen, key=lambda trial: self._validation_loss(study_id, trial))

    def _validation_loss(self, study_id: str, trial: TrialDocument) -> float:
        """Of the epoch that is kept."""
        for epoch in self.client.metrics(study_id, trial.number):
            if epoch.epoch == trial.best_epoch and epoch.validation_loss is not None:
                return epoch.validation_loss
        return math.inf

    def _model_of(self, machine: str | None) -> str:
        """What computes there: a machine's name tells others nothing."""
        return self._models.get(machine or "", "an unknown machine")

    def _is_decided(self, one: "_Open") -> bool:
        claim, trial = one.plan.row.claim, self._training(one)
        if trial is None:
            return False
        epochs = self.client.metrics(one.study.id, trial.number)
        return is_decided(claim, _best_validation(claim, epochs))

    def _pause(self, one: "_Open") -> None:
        """Pause what is underway, and keep how far a single training came."""
        one.study = self.client.pause(one.study.id)
        self.used_seconds += one.used
        trial = self._training(one)
        if trial is not None:
            self._keep(one, trial, unfinished=True)

    def _training(self, one: "_Open") -> TrialDocument | None:
        """The one that a study is of, after its first epoch; a search has none."""
        if one.plan.document["budget"]["trials"] != 1:
            return None
        trial = next(iter(self.client.trials(one.study.id)), None)
        return trial if trial is not None and trial.epochs_trained else None


@dataclass
class _Open:
    """A study that is underway."""

    plan: Plan
    study: StudyDocument
    before: float
    """Seconds that earlier calls had it use."""

    @property
    def used(self) -> float:
        return _seconds(self.study) - self.before


def _pause_after(seconds: float) -> float:
    shortest, longest = _POLL_SECONDS
    return min(longest, max(shortest, _POLL_SHARE * seconds))


def _seconds(study: StudyDocument) -> float:
    return study.progress.device_hours * _SECONDS_AN_HOUR


def _best_validation(claim: Claim | None, epochs: Iterable[EpochDocument]) -> float | None:
    if claim is None:
        return None
    best = max if claim.direction == "maximize" else min
    return best((epoch.validation for epoch in epochs), default=None)


def _commit() -> str:
    """The commit that this program was checked out at, or "unknown" where nothing tells it."""
    asked = ("git", "-C", str(Path(__file__).parent), "rev-parse", "--short=12", "HEAD")
    try:
        answer = subprocess.run(asked, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return answer.stdout.strip()
