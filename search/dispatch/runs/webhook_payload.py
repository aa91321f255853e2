"""What a user's own server is sent at a study's end, see `StudySpec.webhook`."""

import secrets
from typing import Any, Literal

from pydantic import AwareDatetime, Field
from sqlalchemy.orm import Session

from models.spec import Spec
from search.documents.objectives import OBJECTIVE_KINDS
from search.documents.progress import StudyProgress
from search.documents.region import Region
from search.fronts import Figures, ObjectiveInfo, Standing, objective_infos, progress
from search.studies import Objective, StudySpec
from storage.records import DeliveryRecord, StudyRecord, StudyState
from storage.repositories.trial_summaries import TrialSummary
from storage.repositories.webhooks import Deliveries

_MOST_POINTS = 20


class EndPoint(Spec):
    """One point of the front."""

    trial: int
    architecture: str
    parametrization: str
    values: dict[Objective, float | None]
    throughput_ratio: float | None
    outside: bool = Field(description="whether it lies outside the study's region of interest")


class EndFront(Spec):
    """The front."""

    objectives: tuple[ObjectiveInfo, ...]
    size: int = Field(description="points on the front")
    points: tuple[EndPoint, ...] = Field(
        description=f"the first {_MOST_POINTS} at most, by the first objective, best first"
    )


class StudyEnd(Spec):
    """A study as it ended."""

    id: str
    name: str
    state: StudyState
    state_reason: str | None
    started_at: AwareDatetime | None
    finished_at: AwareDatetime | None
    progress: StudyProgress
    front: EndFront


class EndMessage(Spec):
    """What is sent, links excepted."""

    type: Literal["study.finished", "study.cancelled", "study.failed"]
    timestamp: AwareDatetime
    data: StudyEnd


def write_end(session: Session, study: StudyRecord) -> None:
    """Queue the notice of a study's end, if it has a webhook, in the transaction that ends it."""
    spec = StudySpec.model_validate(study.spec)
    at = study.finished_at
    if spec.webhook is None or at is None:
        return
    # None of the process's own, for this version of the study may never be committed.
    figures = Figures()
    end = StudyEnd(
        id=study.id,
        name=study.name,
        state=study.state,
        state_reason=study.state_reason,
        started_at=study.started_at,
        finished_at=at,
        progress=progress(session, study, figures),
        front=_front(spec, figures.standing(session, study)),
    )
    document: dict[str, Any] = {"type": f"study.{study.state}", "timestamp": at, "data": end}
    Deliveries(session).add(
        DeliveryRecord(
            id=f"msg_{secrets.token_hex(12)}",
            study_id=study.id,
            url=spec.webhook.url,
            body=EndMessage.model_validate(document).model_dump(mode="json"),
            tries=0,
            due_at=at,
            delivered_at=None,
            reason=None,
            created_at=at,
        )
    )


def _front(spec: StudySpec, standing: Standing) -> EndFront:
    infos = objective_infos(spec.task, spec.objectives)
    first = infos[0]
    points = [_point(trial, spec.region) for trial in standing.front]
    points.sort(
        key=lambda point: point.values[first.name] or 0.0, reverse=first.direction == "maximize"
    )
    return EndFront(objectives=infos, size=len(points), points=tuple(points[:_MOST_POINTS]))


def _point(trial: TrialSummary, region: Region) -> EndPoint:
    return EndPoint(
        trial=trial.number,
        architecture=trial.architecture,
        parametrization=trial.parametrization,
        values={name: kind.value(trial) for name, kind in OBJECTIVE_KINDS.items()},
        throughput_ratio=trial.throughput_ratio,
        outside=region.is_outside(trial),
    )
