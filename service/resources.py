"""What one API process holds open, and how routes get at it."""

from dataclasses import dataclass
from typing import Annotated

import httpx2
from anyio import CapacityLimiter
from fastapi import Depends, Query, Request

from search.attempts import AttemptDesk
from search.figures import Figures
from search.tasks import DataSources
from service.dataset_intake import DatasetIntake
from service.events import EventPoller
from service.exports import Exports
from service.metrics import ServiceMetrics
from service.settings import Settings
from service.web.pages import Pages
from storage.artifacts import ArtifactStore
from storage.engine import Database


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Everything that requests share."""

    settings: Settings
    database: Database
    store: ArtifactStore
    sources: DataSources
    """Where a study's data are looked at when it is submitted."""
    desk: AttemptDesk
    figures: Figures
    poller: EventPoller
    pages: Pages
    exports: Exports
    intake: DatasetIntake
    readers: CapacityLimiter
    """How many uploads are read at a time."""
    dashboard: httpx2.AsyncClient | None
    """Speaks to the dashboard's process; null where there is none."""
    metrics: ServiceMetrics


def resources_of(request: Request) -> Resources:
    """The resources of the application that serves this request."""
    held: Resources = request.app.state.resources
    return held


Held = Annotated[Resources, Depends(resources_of)]
PageLimit = Annotated[int, Query(ge=1, le=200, description="items on a page")]
PageCursor = Annotated[
    str | None, Query(max_length=500, description="`next_cursor` of the page before")
]
