"""How trials begin and end: their rows, the events that tell of it, and why."""

from dataclasses import replace
from datetime import UTC, datetime

from sqlalchemy.orm import Session

from search.running.early_stopping import reason_to_stop
from search.training.jobs import Completion
from storage.endings import StudyCause, TrialCause
from storage.records import AttemptKind, Json, StudyEnding, TrialOutcome, TrialRecord, TrialState
from storage.repositories.attempts import Attempts
from storage.repositories.events import Events
from storage.repositories.trials import Trials

BROKEN = 1.0
"""The violation of a trial that diverged or ran out of memory: broken, with no amount to tell."""


def end_trial(
    session: Session,
    study_id: str,
    number: int,
    *,
    state: TrialState,
    outcome: TrialOutcome,
    epochs_trained: int | None = None,
) -> TrialRecord:
    """End a trial and tell so; it ends once.

    Raises:
        Conflict: the trial has ended before.
    """
    now = datetime.now(UTC)
    trial = Trials(session).end(
        study_id, number, state=state, at=now, outcome=outcome, epochs_trained=epochs_trained
    )
    announce_trial(session, trial, at=now)
    return trial


def still_stands(session: Session, trial: TrialRecord) -> bool:
    """Whether a trial is in the state in which it was read, and stays so in this transaction.

    What was read before it may have been ended since, by another thread or a user.
    """
    return Trials(session).get(trial.study_id, trial.number).state is trial.state


def begin_trial(session: Session, trial: TrialRecord) -> None:
    """Have a trial's row and an event say that an attempt works on it.

    Raises:
        Conflict: the trial has ended.
    """
    now = datetime.now(UTC)
    Trials(session).start(trial.study_id, trial.number, now)
    announce_trial(session, replace(trial, state=TrialState.RUNNING), at=now)
    if trial.state == TrialState.PAUSED:
        attempts = Attempts(session).of_trial(trial.study_id, trial.number, AttemptKind.TRAIN)
        payload: dict[str, Json] = {
            "trial": trial.number,
            "epoch": trial.epochs_trained,
            "attempt": max(attempt.number for attempt in attempts),
        }
        Events(session).append(trial.study_id, "thawed", payload, now)


def pause_trial(session: Session, study_id: str, number: int, body: Completion) -> None:
    """Have a trial's row and events say that it holds no slot for now, and why.

    Raises:
        Conflict: the trial does not run.
    """
    now = datetime.now(UTC)
    outcome = TrialOutcome.of(body, detail=body.reason)
    trial = Trials(session).pause(study_id, number, outcome=outcome, epochs=body.epochs_trained)
    announce_trial(session, trial, at=now)
    stretch = trial.stretch or {}
    payload: dict[str, Json] = {
        "trial": number,
        "epoch": body.epochs_trained,
        "reason": body.reason,
        "index": stretch.get("index"),
        "price": stretch.get("price"),
    }
    Events(session).append(study_id, "paused", payload, now)


def let_go(session: Session, trial: TrialRecord, why: str) -> None:
    """End a paused trial that never goes on; it keeps what it learned.

    Raises:
        Conflict: the trial has ended before.
    """
    outcome = TrialOutcome.of(trial, cause=TrialCause.LET_GO, detail=why)
    end_trial(session, trial.study_id, trial.number, state=TrialState.STOPPED, outcome=outcome)


def ended_with(ending: StudyEnding) -> TrialOutcome:
    """What becomes of a trial that ends because its study does."""
    if ending.ending_cause is StudyCause.BUDGET:
        return TrialOutcome(cause=TrialCause.BUDGET)
    failed = ending.ending_cause is StudyCause.FAILED
    cause = TrialCause.STUDY_FAILED if failed else TrialCause.CANCELLED
    return TrialOutcome(cause=cause, detail=ending.ending_detail)


def announce_trial(session: Session, trial: TrialRecord, *, at: datetime) -> None:
    """Write the event that tells where a trial stands."""
    payload = {
        "trial": trial.number,
        "state": trial.state,
        "reason": trial.reason,
        "architecture": trial.architecture,
        "parametrization": trial.parametrization,
        "quality": trial.quality,
        "parameters": trial.parameters,
        "throughput": trial.throughput,
        "throughput_ratio": trial.throughput_ratio,
        "latency_p50": trial.latency_p50,
        "latency_p99": trial.latency_p99,
        "bytes": trial.bytes,
    }
    Events(session).append(trial.study_id, "trial", payload, at)


def why_ended(
    body: Completion, state: TrialState, trial: TrialRecord, ending: StudyEnding
) -> tuple[TrialCause | None, str | None]:
    """Why a trial ended, and the details."""
    if state == TrialState.COMPLETE:
        return None, body.reason
    if state == TrialState.INFEASIBLE:
        return TrialCause.INFEASIBLE, body.reason
    if state == TrialState.CANCELLED:
        by_study = ended_with(ending)
        return by_study.cause, by_study.detail
    # The rule that stopped it, if one did, whatever else came meanwhile; or else a budget, which
    # may have been raised by now.
    stopped = reason_to_stop(trial, body.epochs_trained)
    return (TrialCause.BUDGET, None) if stopped is None else (TrialCause.EARLY_STOPPING, stopped)
