"""Commands to a study that was submitted: pause it, resume it, give it another budget."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy.orm import Session

from search.errors import Fault, SpecRefused
from search.studies.spec import Budget, StudySpec
from search.studies.states import enter, priority_of
from search.studies.submission import checked_space
from storage.accounts.audit import Audit
from storage.accounts.quotas import Quotas
from storage.endings import StudyCause
from storage.engine import Database
from storage.errors import Conflict, NotFound
from storage.records import StudyLabels, StudyRecord, StudyState, TrialState
from storage.repositories.attempts import Attempts
from storage.repositories.events import Events
from storage.repositories.metrics import Metrics
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials
from storage.repositories.uploads import Datasets, UploadedModels


def pause(database: Database, study_id: str, *, by: str) -> StudyRecord:
    """Pause a study. Running trials save a checkpoint and stop; none starts until it is resumed.

    Asking twice is harmless, and a study that ended, or that is about to, stays as it is.

    Raises:
        NotFound: there is no such study.
    """
    with database.write() as session:
        before = Studies(session).get(study_id).state
        study = hold(session, study_id, cause=StudyCause.PAUSED, detail=by)
        if study.state != before:
            Audit(session).note("study.paused", study_id)
        return study


def hold(session: Session, study_id: str, *, cause: StudyCause, detail: str) -> StudyRecord:
    """Pause a study for any reason, which the study then shows; see `pause`.

    Raises:
        NotFound: there is no such study.
    """
    study = Studies(session).get(study_id)
    if study.state not in (StudyState.QUEUED, StudyState.RUNNING) or study.ending is not None:
        return study
    now = datetime.now(UTC)
    return enter(session, study_id, StudyState.PAUSED, at=now, cause=cause, detail=detail)


def resume(database: Database, study_id: str) -> StudyRecord:
    """Resume a paused study where it stopped; any other stays as it is.

    Raises:
        NotFound: there is no such study.
    """
    with database.write() as session:
        study = Studies(session).get(study_id)
        if study.state != StudyState.PAUSED:
            return study
        Audit(session).note("study.resumed", study_id)
        before = StudyState.QUEUED if study.started_at is None else StudyState.RUNNING
        return enter(session, study_id, before, at=datetime.now(UTC))


def change(
    database: Database,
    study_id: str,
    *,
    budget: Budget | None = None,
    priority: int | None = None,
    labels: StudyLabels | None = None,
) -> StudyRecord:
    """Give a study another budget, another priority, other labels: all of it, or nothing.

    Its document tells them from then on. Of a budget, what the change does not set stays, and null
    is no limit; a finished study runs on. A priority changes in any state, and ends nothing.
    Labels change in any state as well, and no document tells them.

    Raises:
        NotFound: there is no such study.
        SpecRefused: the budget is less than what is used up, or has another number of epochs.
        Conflict: the budget is of a study that was cancelled or failed, or whose data set or model
            is gone.
    """
    with database.write() as session:
        if budget is not None:
            _change_budget(session, study_id, budget)
        if priority is not None:
            _change_priority(session, study_id, priority)
        if labels is not None:
            _change_labels(session, study_id, labels)
        return Studies(session).get(study_id)


def _change_budget(session: Session, study_id: str, change: Budget) -> None:
    now = datetime.now(UTC)
    studies = Studies(session)
    study = studies.get(study_id)
    refuse_if_over(study)
    before = StudySpec.model_validate(study.spec)
    changed = change.model_dump(exclude_unset=True)
    if faults := _faults(session, study, before, changed):
        raise SpecRefused(faults)
    budget = Budget.model_validate({**before.budget.model_dump(), **changed})
    spec = before.model_copy(update={"budget": budget})
    checked_space(spec)
    studies.set_spec(study_id, spec.model_dump(mode="json"))
    Events(session).append(study_id, "budget", budget.model_dump(mode="json"), now)
    Audit(session).note("study.budget", study_id, **changed)
    reopen(session, study, at=now)


def _change_priority(session: Session, study_id: str, priority: int) -> None:
    """Asking for what it has is harmless, and tells nobody anything."""
    study = Studies(session).get(study_id)
    if priority_of(study) == priority:
        return
    Studies(session).set_spec(study_id, {**study.spec, "priority": priority})
    Events(session).append(study_id, "priority", {"priority": priority}, datetime.now(UTC))
    Audit(session).note("study.priority", study_id, priority=priority)


def _change_labels(session: Session, study_id: str, labels: StudyLabels) -> None:
    Studies(session).set_labels(study_id, labels)
    if labels.name is not None:
        Audit(session).note("study.renamed", study_id, name=labels.name)


def reopen(session: Session, study: StudyRecord, *, at: datetime) -> None:
    """Let a study go on that has finished, or is about to.

    Raises:
        Conflict: its data set, or the model that it compresses, is gone.
        QuotaReached: the tenant has as many studies in progress as it may have.
    """
    Studies(session).clear_ending(study.id)
    if study.state != StudyState.FINISHED:
        return
    try:
        Datasets(session).hold_for(study.spec)
        UploadedModels(session).hold_for(study.spec)
    except NotFound as error:
        raise Conflict(f"study {study.id!r} cannot run on: {error}") from error
    Quotas(session).make_room("studies", tenant=study.tenant)
    enter(session, study.id, StudyState.RUNNING, at=at)


def refuse_if_over(study: StudyRecord) -> None:
    """Let nothing more begin in a study that was cancelled or failed, or that is about to be.

    Raises:
        Conflict: it is such a study.
    """
    on_budget = study.ending_cause in (None, StudyCause.BUDGET)
    if study.state in (StudyState.CANCELLED, StudyState.FAILED) or not on_budget:
        state = study.state.value if on_budget else study.ending
        raise Conflict(f"study {study.id!r} is {state}; only a study that was not can run on")


def _faults(
    session: Session, study: StudyRecord, before: StudySpec, changed: Mapping[str, Any]
) -> list[Fault]:
    """What of a change is less than a study has used up; and the epochs, which are fixed."""
    faults: list[Fault] = []
    fixed = before.budget.epochs
    epochs = changed.get("epochs", fixed)
    if epochs != fixed:
        message = f"{epochs} is not {fixed}: fixed, or trials would not compare"
        faults.append(Fault("budget.epochs", message))
    counts = Trials(session).counts(study.id)
    trained = Metrics(session).epochs_trained(study.id)
    trials = counts.dispatched + counts.by_state.get(TrialState.QUEUED, 0)
    if before.sampler.rungs(fixed):
        # It pauses trials: the budget is that of the epochs of so many whole trainings.
        trials = math.ceil(trained / fixed)
    used = {
        "trials": trials,
        "total_epochs": trained,
        "wall_seconds": study.running_seconds,
        "device_hours": Attempts(session).device_seconds(study.id, datetime.now(UTC)) / 3600,
    }
    for name, least in used.items():
        given = changed.get(name)
        if given is not None and given < least:
            allowed = f"{least:.6g} or more" + ("" if name == "trials" else ", or null")
            message = f"{given:g} is less than what is used up; allowed is {allowed}"
            faults.append(Fault(f"budget.{name}", message))
    return faults
