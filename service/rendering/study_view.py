"""What the page of a study shows, and what its reader may choose of it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast
from urllib.parse import urlencode

from pydantic import BaseModel, ConfigDict, Field, field_validator

from search.documents.fronts import HypervolumePoint
from search.documents.objectives import Objective
from search.fronts.importance import ObjectiveImportance
from search.fronts.pareto import ObjectiveInfo
from service.api.fronts.schemas import FrontDocument
from service.api.studies.schemas import StudyDocument
from service.api.trials.schemas import TrialDocument
from service.figures.curves import Across, Scale
from service.figures.importance import RankedDimension
from service.figures.numbers import read_numbers, write_numbers
from service.rendering.filters import number
from service.rendering.network_view import NetworkView
from storage.records import TrialState, UploadedModelRecord

MOST_PINS = 6
MOST_ROWS = 500
"""How many trials the table shows at once where there are no more; else it has pages."""
PAGE_ROWS = 100

_LARGER_FIRST = ("quality", "throughput", "epochs", "test", "ratio")
"""Columns of which people look at the largest value first."""


class Choice(BaseModel):
    """The query of a study's page; a form sends what is left open as an empty word."""

    model_config = ConfigDict(frozen=True)

    x: Objective | None = Field(
        default=None,
        description="objective of the x axis; by default the first of the study beside quality",
    )
    y: Objective = Field(default="quality", description="objective of the y axis")
    trials: list[str] = Field(
        default_factory=list, max_length=MOST_ROWS, description="what is selected, such as 3,7-12"
    )
    pins: list[str] = Field(
        default_factory=list, max_length=50, description="trials that stand side by side"
    )
    only: Literal["", "selected"] = Field(
        default="", description="whether the table shows the selected trials alone"
    )
    across: Across = "epoch"
    scale: Scale = "auto"
    where: str = Field(default="", max_length=500, description="a filter such as d<=8")
    outcome: TrialState | Literal[""] = Field(default="", description="only trials that stand so")
    columns: list[str] = Field(
        default_factory=list, max_length=200, description="hyperparameters that have a column"
    )
    sort: str = Field(default="number", max_length=200, description="what the table is sorted by")
    order: Literal["up", "down"] = "up"
    page: int = Field(default=1, ge=1, le=100_000, description="of the table of trials")

    @field_validator("trials", "pins")
    @classmethod
    def _tidy(cls, parts: list[str]) -> list[str]:
        words = write_numbers(read_numbers(",".join(parts)))
        return [words] if words else []

    @property
    def selected(self) -> tuple[int, ...]:
        """The trials that are selected."""
        return read_numbers(",".join(self.trials))

    @property
    def pinned(self) -> tuple[int, ...]:
        """The trials that stand side by side, at most six of them."""
        return read_numbers(",".join(self.pins))[:MOST_PINS]

    @property
    def state(self) -> TrialState | None:
        """The state that trials are chosen by, if they are."""
        return self.outcome or None

    @property
    def kept(self) -> list[tuple[str, str]]:
        """Name and value of everything that differs from the default."""
        chosen: dict[str, Any] = self.model_dump(exclude_defaults=True, mode="json")
        found: list[tuple[str, str]] = []
        for name, value in chosen.items():
            several = cast(list[object], value) if isinstance(value, list) else [value]
            found += [(name, str(one)) for one in several]
        return found

    def query(self, **changes: Any) -> str:
        """The query string of this choice with some changes; defaults are left out."""
        return f"?{urlencode(self.model_copy(update=changes).kept)}"

    def sorted_by(self, name: str) -> str:
        """The query string that sorts by a column: first the way in which people look at it."""
        natural = "down" if name in _LARGER_FIRST else "up"
        other = {"up": "down", "down": "up"}[self.order]
        return self.query(sort=name, order=other if self.sort == name else natural, page=1)

    def without_pin(self, trial: int) -> str:
        """The query string without one of the pins."""
        rest = write_numbers(one for one in self.pinned if one != trial)
        return self.query(pins=[rest] if rest else [])


@dataclass(frozen=True, kw_only=True)
class TrialTable:
    """The rows that are shown, of those that a filter leaves."""

    trials: Sequence[TrialDocument]
    total: int
    """How many trials the study has."""
    matching: int
    """How many of them the filter leaves."""
    numbers: str
    """Those that the filter leaves, as a list of ranges; at most so many as can be named."""
    columns: Sequence[str]
    """Hyperparameters that have a column."""
    all_columns: Sequence[str]
    varied: frozenset[str]
    """Those that are not the same in all trials."""
    fault: str | None
    """What is wrong with the filter or the order; None where they are taken."""
    pages: int

    @property
    def headings(self) -> Mapping[str, str]:
        """By hyperparameter: the end of its name, or all of it where another one ends alike."""
        ends = {name: name.rpartition(".")[2] for name in self.columns}
        times = Counter(ends.values())
        return {name: end if times[end] == 1 else name for name, end in ends.items()}


@dataclass(frozen=True, kw_only=True)
class StudyView:
    """One study as its page shows it, all of one transaction."""

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
    infos: Mapping[Objective, ObjectiveInfo]
    choice: Choice
    axes: tuple[Objective, Objective]
    """Of the plot, across and up."""
    growth: Sequence[HypervolumePoint]
    importance: Sequence[ObjectiveImportance]
    ranked: Sequence[RankedDimension]
    """The dimensions of `importance`, those that few trials have last."""
    table: TrialTable
    pinned: Sequence[TrialDocument]
    last_event: int
    is_waiting: bool = False
    """Whether the study is asked to end, or to hold, and has not yet."""

    @property
    def metric(self) -> str:
        """What the study's task calls quality."""
        return self.infos["quality"].metric

    @property
    def pinned_names(self) -> list[str]:
        """Hyperparameters that one of the pinned trials has."""
        return sorted({name for trial in self.pinned for name in trial.hyperparameters})

    def model_of(self, trial: TrialDocument) -> str:
        """A trial's model, or how the layers of a network are stored."""
        if self.network is not None:
            return self.network.forms[trial.parametrization]
        return f"{trial.architecture} × {trial.parametrization}"

    def quality(self, value: float | None) -> str:
        """A quality as the study's tables have it."""
        return number(value) if self.network is None else self.network.metric.shown(value)
