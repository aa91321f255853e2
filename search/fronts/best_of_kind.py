"""The best trial of each kind of model in a study: what kinds are compared by over data sets."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from sqlalchemy.orm import Session

from search.fronts.complete_trials import CompleteTrials
from search.fronts.dominance import is_eligible
from search.studies import StudySpec
from storage.records import StudyRecord, TrialState
from storage.repositories.trial_summaries import TrialSummary
from storage.repositories.trials import Trials

_ORDER: Mapping[TrialState, int] = {
    TrialState.COMPLETE: 2,
    TrialState.STOPPED: 1,
    TrialState.FAILED: 0,
}
"""Which trial of a kind stands for it, the highest first."""

_Rank: TypeAlias = tuple[int, float, int]


@dataclass(frozen=True, kw_only=True)
class BestOfKind:
    """The trial of one architecture and parametrization that is best on validation data."""

    architecture: str
    parametrization: str
    trial: int
    state: TrialState
    """Complete; stopped where none is complete; failed where none was stopped either."""
    quality: float | None
    test_quality: float | None
    parameters: int

    @property
    def kind(self) -> str:
        """Its name among kinds."""
        return kind_name(self.architecture, self.parametrization)


def kind_name(architecture: str, parametrization: str) -> str:
    """The name of a kind of model."""
    return f"{architecture} {parametrization}"


def best_of_kinds(
    session: Session, study: StudyRecord, complete: CompleteTrials
) -> Mapping[str, BestOfKind]:
    """The best trial of each kind that was trained, by the kind's name.

    Complete trials come before those that were stopped: only those are on fronts. Draws that were
    refused, trials that diverged and such as break a limit count for no kind.
    """
    spec = StudySpec.model_validate(study.spec)
    sign = 1.0 if spec.task.metric.direction == "maximize" else -1.0
    others = Trials(session).summaries(study.id, TrialState.STOPPED, TrialState.FAILED)
    best: dict[tuple[str, str], tuple[_Rank, TrialSummary]] = {}
    for trial in [*complete.summaries(session, study), *others]:
        if not _counts(trial):
            continue
        quality = float("-inf") if trial.quality is None else sign * trial.quality
        rank = _ORDER[trial.state], quality, -trial.number
        model = trial.architecture, trial.parametrization
        if model not in best or rank > best[model][0]:
            best[model] = rank, trial
    chosen = [trial for _, trial in best.values()]
    records = {
        record.number: record
        for record in Trials(session).numbered(study.id, [one.number for one in chosen])
    }
    found = [
        BestOfKind(
            architecture=trial.architecture,
            parametrization=trial.parametrization,
            trial=trial.number,
            state=trial.state,
            quality=trial.quality,
            test_quality=records[trial.number].test_quality,
            parameters=trial.parameters,
        )
        for trial in chosen
    ]
    return {one.kind: one for one in sorted(found, key=lambda one: one.kind)}


def _counts(trial: TrialSummary) -> bool:
    if trial.state == TrialState.COMPLETE:
        return is_eligible(trial) and trial.quality is not None
    is_result = trial.state == TrialState.FAILED or trial.quality is not None
    return is_result and trial.violation is None and not trial.origin.follows_search
