"""Studies: what was asked for, where it stands, and what happens in it."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, TypeAlias

from service.answers.base import Answer

StudyState: TypeAlias = Literal["queued", "running", "paused", "finished", "cancelled", "failed"]

ENDED: frozenset[StudyState] = frozenset({"finished", "cancelled", "failed"})


class TrialCounts(Answer):
    """How many trials of a study stand where."""

    total: int = 0
    queued: int = 0
    running: int = 0
    complete: int = 0
    stopped: int = 0
    infeasible: int = 0
    failed: int = 0
    cancelled: int = 0
    refused: int = 0

    @property
    def ended(self) -> int:
        """Trials that used up budget: those with an outcome, without what was never dispatched."""
        return self.complete + self.stopped + self.infeasible - self.refused + self.failed


class Progress(Answer):
    """How far a study is."""

    trials: TrialCounts
    epochs_trained: int
    wall_seconds: float
    device_hours: float
    hypervolume: float | None
    measuring_share: float | None
    eta_seconds: float | None


class Study(Answer):
    """A study: the document that was sent, and where it stands."""

    id: str
    name: str
    state: StudyState
    state_reason: str | None = None
    spec: dict[str, Any]
    created_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    progress: Progress
    links: Mapping[str, str | None]

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen in it."""
        return self.state in ENDED


class Candidate(Answer):
    """An architecture with a parametrization that fits it."""

    architecture: str
    parametrization: str


class ParameterRange(Answer):
    """The smallest and the largest count of parameters in a space."""

    low: int
    high: int


class Dimension(Answer):
    """One thing that is searched: a range of numbers, or options."""

    kind: Literal["integer", "real", "choice"]
    name: str
    low: float | None = None
    high: float | None = None
    log: bool = False
    step: float | None = None
    options: list[bool | int | float | str] | None = None


class DryRun(Answer):
    """What a study would search; nothing was stored."""

    dimensions: list[Dimension]
    candidates: list[Candidate]
    parameter_range: ParameterRange
    known_trials: int = 0


class Event(Answer):
    """One thing that happened in a study; numbers count from 1 without gaps."""

    number: int
    kind: str
    payload: dict[str, Any]
