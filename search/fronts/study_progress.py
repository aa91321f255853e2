"""How far a study is: its trials by state, what they took, and when it may end."""

from datetime import datetime

from pydantic import TypeAdapter
from sqlalchemy.orm import Session

from search.documents.progress import StudyProgress, TrialTotals
from search.fronts.figures import Figures
from search.samplers import AnySampler, Sampler
from search.studies import ENDED, Budget, ended_after_dispatch
from storage.records import StudyRecord, StudyState, TrialCounts, TrialState
from storage.repositories.tallies import Tally

_SAMPLER: TypeAdapter[AnySampler] = TypeAdapter(AnySampler)


def progress(
    session: Session, study: StudyRecord, figures: Figures, tally: Tally | None = None
) -> StudyProgress:
    """How far a study is, as of this transaction; of a tally that is known already."""
    # Of the document this alone: a list makes as many as it has studies.
    budget = Budget.model_validate(study.spec.get("budget", {}))
    tally = tally or figures.tally(session, study)
    wall = study.running_seconds
    epochs_left = _epochs_left(study, budget, tally.epochs_trained)
    share = _share(study, budget, tally, epochs_left)
    standing = figures.standing(session, study)
    return StudyProgress(
        trials=_totals(tally.counts, budget.trials),
        epochs_trained=tally.epochs_trained,
        epochs_left=epochs_left,
        wall_seconds=wall,
        device_hours=tally.device_time.seconds / 3600,
        hypervolume=standing.hypervolume,
        front_points=len(standing.front),
        measuring_share=min(1.0, tally.measuring_seconds / wall) if wall > 0 else 0.0,
        share=share,
        eta_seconds=_eta(study, share, tally.begun),
    )


def _totals(counts: TrialCounts, budget: int) -> TrialTotals:
    by_state = {str(state): counts.by_state.get(state, 0) for state in TrialState}
    return TrialTotals(total=budget, refused=counts.refused, **by_state)


def _epochs_left(study: StudyRecord, budget: Budget, trained: int) -> int | None:
    """Of the trainings that the budget counts; null where it counts trials."""
    if "sampler" not in study.spec:
        return None
    sampler: Sampler = _SAMPLER.validate_python(study.spec["sampler"])
    if not sampler.rungs(budget.epochs):
        return None
    return 0 if study.state in ENDED else max(0, budget.trials * budget.epochs - trained)


def _share(study: StudyRecord, budget: Budget, tally: Tally, epochs_left: int | None) -> float:
    """How much of the budget is used up, by the part of it of which most is."""
    if study.state == StudyState.FINISHED:
        return 1.0
    trained = tally.epochs_trained
    if epochs_left is None:
        # Trials that train count by their epochs: long ones move on before the first has ended.
        whole = max(float(ended_after_dispatch(tally.counts)), trained / budget.epochs)
        used = whole / budget.trials
    else:
        used = trained / (budget.trials * budget.epochs)
    spent = (
        (trained, budget.total_epochs),
        (study.running_seconds, budget.wall_seconds),
        (tally.device_time.seconds / 3600, budget.device_hours),
    )
    return min(1.0, max([used, *(some / most for some, most in spent if most is not None)]))


def _eta(study: StudyRecord, share: float, begun: datetime | None) -> float | None:
    """Seconds to the end at the pace so far, without the wait for the first slot."""
    if study.state in ENDED:
        return 0.0
    seconds = study.running_seconds
    if begun is not None and study.started_at is not None:
        waited = (begun - study.started_at).total_seconds()
        # Of a study that was paused meanwhile it is unknown how much of the wait was counted.
        if 0 < waited < seconds:
            seconds -= waited
    return seconds * (1 - share) / share if share > 0 else None
