"""How far a study is: its trials by state, what they took, and when it may end."""

from pydantic import TypeAdapter
from sqlalchemy.orm import Session

from search.documents.progress import StudyProgress, TrialTotals
from search.fronts.figures import Figures
from search.samplers import AnySampler, Sampler
from search.studies import ENDED, Budget, ended_after_dispatch
from storage.records import StudyRecord, TrialCounts, TrialState
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
        eta_seconds=_eta(study, budget, tally, epochs_left),
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


def _eta(study: StudyRecord, budget: Budget, tally: Tally, epochs_left: int | None) -> float | None:
    """Seconds to the end at the pace so far, or to the end of the wall budget if that is sooner."""
    if study.state in ENDED:
        return 0.0
    if epochs_left is None:
        # Whole trainings count as trials: of long ones there is a pace before the first has ended.
        whole = tally.epochs_trained / budget.epochs
        done = max(float(ended_after_dispatch(tally.counts)), whole)
        left = max(0.0, budget.trials - done)
    else:
        done, left = float(tally.epochs_trained), float(epochs_left)
    estimates: list[float] = []
    if done > 0:
        estimates.append(study.running_seconds / done * left)
    if budget.wall_seconds is not None:
        estimates.append(max(0.0, budget.wall_seconds - study.running_seconds))
    return min(estimates) if estimates else None
