"""What a user does with a study: submit it, cancel it, ask how far it is."""

import hashlib
import json
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime

from sqlalchemy.orm import Session

from models.spec import Spec
from search.figures import Figures
from search.originals import with_original
from search.resolving import resolved
from search.space import SearchSpace, SpaceDescription
from search.spec import StudySpec
from search.tasks import DataSources
from search.warm_start import foreign_trials
from storage.audit import Audit
from storage.datasets import Datasets
from storage.engine import Database
from storage.events import Events
from storage.foreign_trials import ForeignTrials
from storage.records import StudyRecord, StudyState, TrialCounts, TrialState
from storage.studies import Studies
from storage.uploaded_models import UploadedModels

ENDED = (StudyState.FINISHED, StudyState.CANCELLED, StudyState.FAILED)
"""The states that a study does not leave."""

CANCELLED_BY = "cancelled by "
"""How the reason of a cancelled study begins; who asked for it follows."""


class TrialTotals(Spec):
    """Trials by state; `total` is the budget."""

    total: int
    queued: int
    running: int
    complete: int
    stopped: int
    infeasible: int
    failed: int
    cancelled: int
    refused: int
    """Those of the infeasible that were refused before dispatch, and so cost no budget."""


class StudyProgress(Spec):
    """How far a study is."""

    trials: TrialTotals
    epochs_trained: int
    wall_seconds: float
    device_hours: float
    hypervolume: float | None
    measuring_share: float
    """Share of the running time in which the measuring lane was in use."""
    eta_seconds: float | None


def submit(
    database: Database,
    spec: StudySpec,
    *,
    sources: DataSources,
    idempotency_key: str | None = None,
) -> StudyRecord:
    """Store a study with the facts of its data, to be begun by a coordinator.

    The same key with the same spec gives the same study, whatever became of its data since.

    Raises:
        SpecRefused: the spec cannot be run, or its data are not there; nothing is stored.
        IdempotencyConflict: the key came with another spec before.
    """
    # Of what was sent: the data may have changed when the same is sent again.
    digest = hashlib.sha256(
        json.dumps(spec.model_dump(mode="json"), sort_keys=True).encode()
    ).hexdigest()
    if idempotency_key is not None:
        with database.read() as session:
            known = Studies(session).find_idempotent(idempotency_key, digest)
        if known is not None:
            return known
    spec = with_original(database, resolved(spec, sources))
    foreign = foreign_trials(database, spec, SearchSpace(spec))
    now, study_id = datetime.now(UTC), secrets.token_hex(6)
    document = spec.model_dump(mode="json")
    with database.write() as session:
        Datasets(session).hold_for(document)
        UploadedModels(session).hold_for(document)
        studies = Studies(session)
        study = studies.create(
            id=study_id,
            name=spec.name,
            spec=document,
            at=now,
            idempotency_key=idempotency_key,
            body_digest=digest,
        )
        if study.id == study_id:
            ForeignTrials(session).add(study.id, foreign)
            announce(session, study, at=now)
            Audit(session).note("study.submitted", study.id, name=study.name)
        return studies.get(study.id)


def dry_run(database: Database, spec: StudySpec, *, sources: DataSources) -> SpaceDescription:
    """What a study would search and would know beforehand; nothing is stored.

    Raises:
        SpecRefused: the spec cannot be run, or its data are not there.
    """
    spec = with_original(database, resolved(spec, sources))
    space = SearchSpace(spec)
    known = len(foreign_trials(database, spec, space))
    return space.describe().model_copy(update={"known_trials": known})


def cancel(database: Database, study_id: str, *, by: str) -> StudyRecord:
    """End a study without waiting for its trials.

    Asking twice is harmless, and a study that ended stays as it is.

    Raises:
        NotFound: there is no such study.
    """
    with database.write() as session:
        studies = Studies(session)
        study = studies.get(study_id)
        if study.state not in ENDED and studies.set_ending(study_id, f"{CANCELLED_BY}{by}"):
            Audit(session).note("study.cancelled", study_id)
        return studies.get(study_id)


def announce(session: Session, study: StudyRecord, *, at: datetime) -> None:
    """Write the event that tells where a study stands."""
    Events(session).append(
        study.id, "study", {"state": study.state, "reason": study.state_reason}, at
    )


def enter(
    session: Session, study_id: str, state: StudyState, *, at: datetime, reason: str | None = None
) -> StudyRecord:
    """Bring a study into a state, and tell so."""
    studies = Studies(session)
    studies.set_state(study_id, state, at=at, reason=reason)
    study = studies.get(study_id)
    announce(session, study, at=at)
    return study


def progress(session: Session, study: StudyRecord, figures: Figures) -> StudyProgress:
    """How far a study is, as of this transaction."""
    spec = StudySpec.model_validate(study.spec)
    tally = figures.tally(session, study)
    wall = study.running_seconds
    return StudyProgress(
        trials=_totals(tally.counts, spec.budget.trials),
        epochs_trained=tally.epochs_trained,
        wall_seconds=wall,
        device_hours=tally.device_seconds / 3600,
        hypervolume=figures.standing(session, study).hypervolume,
        measuring_share=min(1.0, tally.lane_seconds / wall) if wall > 0 else 0.0,
        eta_seconds=_eta(study, spec, tally.counts),
    )


def ended_after_dispatch(counts: TrialCounts) -> int:
    """How much of the budget of trials is used up: those that ended, refused draws excepted."""
    at_work = counts.by_state.get(TrialState.RUNNING, 0)
    return counts.dispatched - at_work


def _totals(counts: TrialCounts, budget: int) -> TrialTotals:
    by_state = {str(state): counts.by_state.get(state, 0) for state in TrialState}
    return TrialTotals(total=budget, refused=counts.refused, **by_state)


def _eta(study: StudyRecord, spec: StudySpec, counts: TrialCounts) -> float | None:
    """Seconds to the end at the pace so far, or to the end of the wall budget if that is sooner."""
    if study.state in ENDED:
        return 0.0
    done = ended_after_dispatch(counts)
    estimates: list[float] = []
    if done > 0:
        estimates.append(study.running_seconds / done * max(0, spec.budget.trials - done))
    if spec.budget.wall_seconds is not None:
        estimates.append(max(0.0, spec.budget.wall_seconds - study.running_seconds))
    return min(estimates) if estimates else None


def priority_of(study: StudyRecord) -> int:
    """Its place among others, the highest first; documents of an earlier version have none."""
    priority = study.spec.get("priority", 0)
    return priority if isinstance(priority, int) else 0


def in_progress(session: Session) -> Sequence[StudyRecord]:
    """The studies that a coordinator has to work on, oldest first."""
    # A paused one too: what trains in it has to be put aside, and it goes on at once when asked to.
    return Studies(session).in_states(StudyState.QUEUED, StudyState.RUNNING, StudyState.PAUSED)
