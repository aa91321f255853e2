"""What the report of a study tells."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from search.documents.fronts import HypervolumePoint
from search.fronts.importance import ObjectiveImportance
from search.fronts.pareto import ObjectiveInfo
from service.api.fronts.schemas import FrontDocument, PointDocument
from service.api.studies.schemas import StudyDocument
from service.figures.importance import RankedDimension
from service.figures.style import Json, Theme
from service.rendering.network_view import NetworkView
from storage.records import TrialRecord, TrialState, UploadedModelRecord


@dataclass(frozen=True, kw_only=True)
class Measured:
    """How the throughput of a point was measured."""

    trial: int
    record: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class CameToNothing:
    """Trials of one outcome that put no point on the front."""

    outcome: TrialState
    total: int
    trials: Sequence[TrialRecord]
    """The first of them."""


@dataclass(frozen=True)
class ReportFigure:
    """A figure in each theme: who reads the file may have either."""

    title: str
    themes: Mapping[Theme, Json]


@dataclass(frozen=True, kw_only=True)
class StudyReport:
    """One study as its report tells it, all of one transaction."""

    study: StudyDocument
    spec: Mapping[str, Any]
    """As it can be sent again."""
    model: UploadedModelRecord | None
    """What the study compresses, unless it is gone."""
    network: NetworkView | None
    """Of a study of a network of others, what only such studies have."""
    front: FrontDocument
    region: str
    """Which values interest, in words; empty where all do."""
    metric: str
    figures: tuple[ReportFigure, ...]
    """Empty in a plain report."""
    best: tuple[tuple[ObjectiveInfo, PointDocument], ...]
    circumstances: tuple[Mapping[str, Any], ...]
    """Those that measurements of the front were made in; one, unless devices were mixed."""
    measured: tuple[Measured, ...]
    came_to_nothing: tuple[CameToNothing, ...]
    growth: Sequence[HypervolumePoint]
    importance: Sequence[ObjectiveImportance]
    ranked: Sequence[RankedDimension]
    """The dimensions of `importance`, those that few trials have last."""
    versions: Mapping[str, str]
    last_event: int
