"""What the page of a study shows, and what its reader may choose of it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlencode

from pydantic import BaseModel, ConfigDict, Field, field_validator

from search.documents.objectives import Objective
from search.fronts.importance import ObjectiveImportance
from search.fronts.pareto import ObjectiveInfo
from service.api.fronts.schemas import FrontDocument
from service.api.studies.schemas import StudyDocument
from service.api.trials.schemas import TrialDocument
from service.rendering.network_view import NetworkView
from service.rendering.plots.curves import MOST_CURVES, Panel
from service.rendering.plots.front_plot import FrontPlot
from service.rendering.plots.growth import Growth
from storage.records import TrialState, UploadedModelRecord
from storage.repositories.trials import TrialOrder

_TRIALS = 50
"""How many trials the table shows at a time."""


class Choice(BaseModel):
    """The query of a study's page; a form sends what is left open as an empty word."""

    model_config = ConfigDict(frozen=True)

    x: Objective | None = Field(
        default=None,
        description="objective of the x axis; by default the first of the study beside quality",
    )
    y: Objective = Field(default="quality", description="objective of the y axis")
    curves: str = Field(
        default="",
        max_length=100,
        pattern=r"^[0-9,\s]*$",
        description="trials whose learning curves are shown, by number",
    )
    outcome: TrialState | Literal[""] = Field(default="", description="only trials that stand so")
    sort: TrialOrder = "number"
    order: Literal["up", "down"] = "up"
    page: int = Field(default=1, ge=1, le=100_000, description="of the table of trials")

    @field_validator("curves")
    @classmethod
    def _tidy(cls, text: str) -> str:
        return ", ".join(text.replace(",", " ").split())

    def axes(self, objectives: Iterable[Objective]) -> tuple[Objective, Objective]:
        """Two of these objectives; an axis that is named twice gives way to another one."""
        named = list(objectives)
        costs: list[Objective] = [name for name in named if name != "quality"]
        x = self.x or costs[0]
        others: list[Objective] = [name for name in named if name != x]
        return x, self.y if self.y != x else others[0]

    @property
    def trials(self) -> tuple[int, ...]:
        """The trials named for their curves, as many as can be told apart."""
        numbers = [int(word) for word in self.curves.replace(",", " ").split()]
        return tuple(dict.fromkeys(numbers))[:MOST_CURVES]

    @property
    def state(self) -> TrialState | None:
        """The state that trials are chosen by, if they are."""
        return self.outcome or None

    @property
    def offset(self) -> int:
        """How many trials come before the page."""
        return (self.page - 1) * _TRIALS

    @property
    def limit(self) -> int:
        """How many trials a page has."""
        return _TRIALS

    def query(self, **changes: Any) -> str:
        """The query string of this choice with some changes; what is as usual is left out."""
        chosen = self.model_copy(update=changes).model_dump(exclude_defaults=True, mode="json")
        return f"?{urlencode(chosen)}"

    def sorted_by(self, name: str) -> str:
        """The query string that sorts by a column: first the way in which people look at it."""
        natural = "down" if name in ("quality", "throughput", "epochs_trained") else "up"
        other = {"up": "down", "down": "up"}[self.order]
        return self.query(sort=name, order=other if self.sort == name else natural, page=1)


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
    plot: FrontPlot | None
    growth: Growth | None
    panels: tuple[Panel, ...]
    curves: Mapping[int, str]
    """Trial whose curve is shown -> its model."""
    importance: Sequence[ObjectiveImportance]
    trials: Sequence[TrialDocument]
    has_more: bool
    """Whether the table goes on."""
    last_event: int
    is_waiting: bool = False
    """Whether the study is asked to end, or to hold, and has not yet."""

    @property
    def metric(self) -> str:
        """What the study's task calls quality."""
        return self.infos["quality"].metric
