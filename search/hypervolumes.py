"""How the hypervolume of a study's front grew, as the coordinator noted it whenever it changed."""

from datetime import datetime
from typing import cast

from pydantic import Field
from sqlalchemy.orm import Session

from models.spec import Spec
from storage.events import Events

FRONT = "front"
"""The kind of the events that tell of another front."""


class HypervolumePoint(Spec):
    """The front from the moment on that a trial changed it."""

    trial: int | None = Field(description="the trial that came onto the front, the last of several")
    epochs_trained: int | None = Field(description="by all trials of the study, until then")
    wall_seconds: float | None = Field(description="in state running, until then")
    at: datetime
    hypervolume: float
    points: int = Field(description="how many trials are on the front")


def hypervolumes(session: Session, study_id: str) -> tuple[HypervolumePoint, ...]:
    """Every change of the front, in order; none where a study has no hypervolume.

    A coordinator that is started again tells of the front that it finds; that is no change.
    """
    found: list[HypervolumePoint] = []
    before: object = None
    for event in Events(session).of_kind(study_id, FRONT):
        payload = event.payload
        if payload["hypervolume"] is None or payload["trials"] == before:
            continue
        before = payload["trials"]
        found.append(
            HypervolumePoint(
                trial=cast(int | None, payload.get("trial")),
                epochs_trained=cast(int | None, payload.get("epochs_trained")),
                wall_seconds=cast(float | None, payload.get("wall_seconds")),
                at=event.created_at,
                hypervolume=cast(float, payload["hypervolume"]),
                points=len(cast(list[int], before)),
            )
        )
    return tuple(found)
