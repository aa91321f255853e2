"""What one API process holds open, and how routes get at it."""

from dataclasses import dataclass, replace
from typing import Annotated, Self

import httpx2
from anyio import CapacityLimiter
from fastapi import Depends, Query, Request

from search.fronts.figures import Figures
from search.running.agent_handler import AgentHandler
from search.running.attempts import AttemptHandler
from search.tasks import DataSources
from service.api.agents.notifier import AgentNotifier
from service.api.datasets.intake import DatasetIntake
from service.api.datasets.shelf import StoredDatasets
from service.api.events.open_streams import OpenStreams
from service.api.events.poller import EventPoller
from service.api.models.intake import ModelIntake
from service.api.trials.exports import Exports
from service.api.uploads.turns import UploadTurns
from service.auth.principal import LOCAL_USER, Principal
from service.auth.quota_book import QuotaBook
from service.observability.metrics import ServiceMetrics
from service.rendering.pages import Pages
from service.settings import Settings
from storage.blobs.artifacts import ArtifactStore
from storage.engine import Database


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Everything that requests share."""

    settings: Settings
    database: Database
    store: ArtifactStore
    sources: DataSources
    """Where a study's data are looked at when it is submitted."""
    handler: AttemptHandler
    agents: AgentHandler
    notifier: AgentNotifier
    """Where polls of worker machines wait."""
    figures: Figures
    poller: EventPoller
    pages: Pages
    exports: Exports
    intake: DatasetIntake
    model_intake: ModelIntake
    probes: CapacityLimiter
    """How many threads look whether the server is ready, beside those of requests."""
    quotas: QuotaBook
    uploads: UploadTurns
    """Which uploads are under way, and whose is read next."""
    streams: OpenStreams
    dashboard: httpx2.AsyncClient | None
    """Speaks to the dashboard's process; null where there is none."""
    metrics: ServiceMetrics
    asker: Principal = LOCAL_USER
    """For whom all this is held: the user of the request, in a route that the gate guards."""

    def of(self, principal: Principal) -> Self:
        """What there is for one tenant; rows of others are not there."""
        database = self.database.of(principal.tenant, key_id=principal.key_id)
        return replace(
            self,
            asker=principal,
            database=database,
            pages=self.pages.of(logged_in=principal.via == "cookie"),
            sources=replace(self.sources, datasets=StoredDatasets(database, self.store)),
            exports=self.exports.of(database),
            intake=self.intake.of(database),
            model_intake=self.model_intake.of(database),
        )


# Both only look at what is there: as coroutines they need no thread.
async def _whole(request: Request) -> Resources:
    whole: Resources = request.app.state.resources
    return whole


def principal_of(request: Request) -> Principal:
    """Who makes this request; only routes that the gate guards may ask."""
    principal: Principal | None = request.state.principal
    if principal is None:
        raise RuntimeError(f"{request.url.path} is open to all, and asks who comes")
    return principal


async def _held(request: Request) -> Resources:
    return (await _whole(request)).of(principal_of(request))


Whole = Annotated[Resources, Depends(_whole)]
"""The resources of the application, with every tenant's rows: for what belongs to nobody."""

Held = Annotated[Resources, Depends(_held)]
"""The resources as the request's tenant has them, see Note [Tenants]."""

PageLimit = Annotated[int, Query(ge=1, le=200, description="items on a page")]
PageCursor = Annotated[
    str | None, Query(max_length=500, description="`next_cursor` of the page before")
]
