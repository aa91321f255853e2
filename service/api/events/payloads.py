"""What the events of a study's stream tell, kind by kind; for the OpenAPI document."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import Field
from pydantic.json_schema import models_json_schema

from models.spec import Spec
from search.fronts.hypervolumes import FRONT
from search.studies.spec import Budget
from search.training.jobs import EpochReport, Progress
from storage.records import AttemptKind, StudyState, TrialState


class Happened(Spec):
    """What all events have."""

    at: datetime


class StudyEvent(Happened):
    """`study`: where the study stands now; an end is the last event of its stream."""

    state: StudyState
    reason: str | None


class TrialEvent(Happened):
    """`trial`: where a trial stands now, with the values that are known by then."""

    trial: int
    state: TrialState
    reason: str | None
    architecture: str
    parametrization: str
    quality: float | None
    parameters: int
    throughput: float | None = Field(description="samples per second")
    throughput_ratio: float | None = Field(description="times the dense baseline's")
    latency_p50: float | None = Field(description="seconds of one call, the median")
    latency_p99: float | None = Field(description="seconds that 99 of 100 calls took at most")
    bytes: int | None = Field(description="of the file in `export`")


class EpochEvent(EpochReport, Happened):
    """`epoch`: one point of a learning curve; a later one of the same epoch overwrites it."""

    trial: int


class MeasurementEvent(Happened):
    """`measurement`: a throughput that was measured, alone on its device."""

    trial: int
    shape_key: str
    device: str
    samples_per_second: float
    ratio: float
    latency_p50: float | None
    latency_p99: float | None
    seconds: float = Field(description="how long the measurement lock was held for it")


class DownloadEvent(Progress, Happened):
    """`download`: how far a file of the task's data is."""


class FrontEvent(Happened):
    """`front`: the front has changed; what it has cost to get there."""

    trials: list[int] = Field(description="all that are on it now")
    hypervolume: float | None
    trial: int | None = Field(
        description="the last that came onto it; where points have only left, the newest that stays"
    )
    epochs_trained: int
    wall_seconds: float


class BudgetEvent(Budget, Happened):
    """`budget`: the budget as it is from now on."""


class PriorityEvent(Happened):
    """`priority`: the priority as it is from now on."""

    priority: int


class PausedEvent(Happened):
    """`paused`: a trial holds no slot for now, for others promise more."""

    trial: int
    epoch: int = Field(description="that it has trained")
    reason: str | None
    index: float | None = Field(
        description="hypervolume for each unit of `price` that was expected of its last stretch"
    )
    price: float | None


class ThawedEvent(Happened):
    """`thawed`: a paused trial goes on."""

    trial: int
    epoch: int = Field(description="from which it goes on")
    attempt: int


class AttemptLostEvent(Happened):
    """`attempt_lost`: a worker died or fell silent; the same job is tried again."""

    attempt: int
    kind: AttemptKind
    trial: int | None
    reason: str


EVENTS: Mapping[str, type[Happened]] = {
    "study": StudyEvent,
    "trial": TrialEvent,
    "epoch": EpochEvent,
    "measurement": MeasurementEvent,
    "download": DownloadEvent,
    FRONT: FrontEvent,
    "budget": BudgetEvent,
    "priority": PriorityEvent,
    "paused": PausedEvent,
    "thawed": ThawedEvent,
    "attempt_lost": AttemptLostEvent,
}
"""Every kind of event, by the name that stands in the stream's `event`."""


def stream_schema(schemas: dict[str, Any]) -> dict[str, Any]:
    """The schema of a stream's event, kind by kind; what `data` holds is added to `schemas`."""
    references, found = models_json_schema(
        [(model, "serialization") for model in EVENTS.values()],
        ref_template="#/components/schemas/{model}",
    )
    for name, schema in found["$defs"].items():
        schemas.setdefault(name, schema)
    return {
        "oneOf": [
            {
                "type": "object",
                "properties": {
                    "id": {"type": "string", "pattern": "^[0-9]+$"},
                    "event": {"const": kind},
                    "data": {
                        "type": "string",
                        "contentMediaType": "application/json",
                        "contentSchema": references[model, "serialization"],
                    },
                },
                "required": ["id", "event", "data"],
            }
            for kind, model in EVENTS.items()
        ]
    }
