"""Kinds of models compared over the data sets of a collection."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from search.documents.objectives import Direction
from search.errors import Fault, SpecRefused
from search.fronts import BestOfKind, Figures
from search.papers import Ranks, ranks_of, unknown
from search.studies import StudySpec
from storage.records import CollectionStudyRecord, StudyRecord, TrialState


@dataclass(frozen=True)
class SetResults:
    """What one study of a collection has found."""

    member: CollectionStudyRecord
    study: StudyRecord
    kinds: Mapping[str, BestOfKind]
    """By name, the kinds of models that were trained."""
    metric: str
    direction: Direction

    def score(self, kind: str) -> float:
        """The quality of a kind, where more is better; minus infinity for one that failed."""
        found = self.kinds[kind]
        if found.quality is None or found.state == TrialState.FAILED:
            return -math.inf
        return found.quality if self.direction == "maximize" else -found.quality

    @property
    def best(self) -> BestOfKind | None:
        """The best trial of all; a complete one where there is any."""
        whole = [one for one in self.kinds.values() if one.state == TrialState.COMPLETE]
        among = whole or [*self.kinds.values()]
        return max(among, key=lambda one: self.score(one.kind), default=None)


@dataclass(frozen=True, kw_only=True)
class ComparedKind:
    """A kind of model over the data sets that have all kinds."""

    kind: str
    mean_rank: float
    parameters: float
    """The geometric mean over the data sets."""
    on_front: bool
    """Whether no other kind has as good a rank with as few parameters, and one of them better."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Which kinds are best over the data sets of a collection."""

    kinds: Sequence[str]
    """Those that are compared."""
    sets: Sequence[SetResults]
    """Those that have all kinds."""
    left_out: Sequence[tuple[SetResults, Sequence[str]]]
    """The others, and the kinds that they lack."""
    ranks: Ranks | None
    """Null below two data sets or two kinds."""
    compared: Sequence[ComparedKind]
    """The best mean rank first; empty where there are no ranks."""


def results_of(
    session: Session,
    members: Sequence[CollectionStudyRecord],
    studies: Mapping[str, StudyRecord],
    figures: Figures,
) -> list[SetResults]:
    """What the studies of a collection have found so far."""
    found: list[SetResults] = []
    for member in members:
        study = studies[member.study_id]
        metric = StudySpec.model_validate(study.spec).task.metric
        kinds = figures.kinds(session, study)
        found.append(SetResults(member, study, kinds, metric.name, metric.direction))
    return found


def compare(results: Sequence[SetResults], *, kinds: Sequence[str] = ()) -> Comparison:
    """Compare these kinds of models, or all that any of the studies trained.

    Raises:
        SpecRefused: no study trained a kind of that name.
    """
    trained = sorted({kind for one in results for kind in one.kinds})
    for index, kind in enumerate(kinds):
        if kind not in trained:
            message = unknown("kind", kind, trained)
            raise SpecRefused([Fault(f"kinds.{index}", message)])
    wanted = [kind for kind in trained if not kinds or kind in kinds]
    lacking = {one.member.row: [k for k in wanted if k not in one.kinds] for one in results}
    whole = [one for one in results if not lacking[one.member.row]]
    ranks = ranks_of(
        {one.member.row: {k: one.score(k) for k in wanted} for one in whole},
        one_metric=len({(one.metric, one.direction) for one in whole}) == 1,
    )
    return Comparison(
        kinds=wanted,
        sets=whole,
        left_out=[(one, lacking[one.member.row]) for one in results if lacking[one.member.row]],
        ranks=ranks,
        compared=[] if ranks is None else _compared(ranks.mean_ranks, whole),
    )


def _compared(mean_ranks: Mapping[str, float], sets: Sequence[SetResults]) -> list[ComparedKind]:
    sizes = {
        kind: statistics.geometric_mean([max(1, one.kinds[kind].parameters) for one in sets])
        for kind in mean_ranks
    }
    points = {kind: (rank, sizes[kind]) for kind, rank in mean_ranks.items()}
    return [
        ComparedKind(
            kind=kind,
            mean_rank=points[kind][0],
            parameters=points[kind][1],
            on_front=not any(_beats(other, points[kind]) for other in points.values()),
        )
        for kind in sorted(points, key=lambda kind: points[kind])
    ]


def _beats(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one != other and one[0] <= other[0] and one[1] <= other[1]
