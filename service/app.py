"""The HTTP application: what it holds open, its routes, and what holds for every request."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path

from anyio import CapacityLimiter, to_thread
from fastapi import FastAPI
from starlette.staticfiles import StaticFiles
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from models.graphs.documents import GraphLimits
from search.fronts.figures import Figures
from search.running.agent_handler import AgentHandler
from search.running.attempts import AttemptHandler
from search.tasks import DataSources
from search.uploads.graph_uploads import GraphReading
from search.uploads.uploads import UploadLimits
from service.api import openapi
from service.api.agents.notifier import AgentNotifier
from service.api.agents.routes import PREFIX as AGENTS
from service.api.audit.routes import PREFIX as AUDIT
from service.api.dashboard.routes import dashboard_client
from service.api.datasets.intake import DatasetIntake
from service.api.datasets.shelf import StoredDatasets
from service.api.events.direct import DirectStreams
from service.api.events.open_streams import OpenStreams
from service.api.events.poller import EventPoller
from service.api.events.routes import StreamIsOver, get_events, no_more_events
from service.api.events.routes import router as events
from service.api.keys.routes import PREFIX as KEYS
from service.api.models.intake import ModelIntake
from service.api.models.readers import GraphFileReader, ModelReader, TensorReader
from service.api.resources import Resources
from service.api.trials.exports import Exports
from service.api.uploads.forms import UploadRefused, refuse_upload
from service.api.uploads.turns import UploadTurns
from service.api.webhooks.routes import SECRET as WEBHOOK_SECRET
from service.auth.entrance import Entrance
from service.auth.gate import Doors, Gate, Guard
from service.auth.keyring import KeyRing
from service.auth.logins import Logins
from service.auth.origins import is_loopback
from service.auth.quota_book import QuotaBook
from service.auth.rate_limits import RateLimits
from service.auth.shared_counters import SharedCounters
from service.data_dir.artifact_store import open_artifacts
from service.errors import add_error_handlers
from service.http.body_limits import BodyLimits
from service.http.kept_answers import KeptAnswers
from service.observability.metrics import ServiceMetrics
from service.observability.peers import WRITE_EVERY_SECONDS
from service.observability.telemetry import telemetry_config
from service.pages.login import LOGIN, LOGOUT
from service.pages.shown_problems import problem_pages
from service.rendering.pages import Pages
from service.rendering.swagger import swagger_files
from service.routers import ROUTERS
from service.settings import Settings
from storage.engine import Database

_log = logging.getLogger(__name__)

# Each may take all the memory that the settings allow for one.
_READ_AT_A_TIME = 2

_PROBES_AT_A_TIME = 2

_ASSETS = Path(__file__).parent / "rendering" / "assets"

_DOORS = Doors(
    signs_of_life=("/healthz", "/readyz"),
    open=(LOGIN, LOGOUT, "/assets/"),
    loopback=("/metrics",),
    admin=(KEYS, AUDIT, WEBHOOK_SECRET),
    work=(AGENTS,),
)


def create_app(settings: Settings) -> FastAPI:
    """The application over a database that is migrated already."""
    metrics = ServiceMetrics(settings)
    app = FastAPI(
        title="Reflectory",
        summary="Pareto fronts of accuracy, parameter count and measured throughput",
        version=version("reflectory"),
        lifespan=partial(_lifespan, settings, metrics),
        telemetry=telemetry_config(enabled=settings.telemetry),
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=lambda route: route.name,
    )
    # Its server counts what it refuses by itself.
    app.state.metrics = metrics
    app.state.page_of_problem = problem_pages(Pages())
    add_error_handlers(app)
    app.add_exception_handler(StreamIsOver, no_more_events)
    app.add_exception_handler(UploadRefused, refuse_upload)
    for router in ROUTERS:
        app.include_router(router)
    app.mount("/assets/swagger", StaticFiles(directory=swagger_files()), name="swagger")
    app.mount("/assets", StaticFiles(directory=_ASSETS), name="assets")
    app.add_middleware(
        Entrance,
        gate=Gate(doors=_DOORS, settings=settings, counters=metrics.requests),
        bodies=BodyLimits(settings, metrics.requests),
        counters=metrics.requests,
        access_log=settings.access_log,
        most=settings.requests_at_once,
        direct=DirectStreams(events, get_events),
        page_of=app.state.page_of_problem,
    )
    # The last one added sees a request first.
    if settings.trusted_proxies:
        app.add_middleware(ProxyHeadersMiddleware, trusted_hosts=list(settings.trusted_proxies))
    openapi.describe(app)
    return app


def close_streams(app: FastAPI) -> None:
    """End all that waits in a running application, so that its server can stop."""
    app.state.resources.poller.close_streams()
    app.state.resources.notifier.close()


@asynccontextmanager
async def _lifespan(
    settings: Settings, metrics: ServiceMetrics, app: FastAPI
) -> AsyncGenerator[None]:
    """Hold open what requests share, for as long as the application runs."""
    held = _resources(settings, metrics)
    await to_thread.run_sync(held.intake.sweep)
    app.state.resources = held
    app.state.guard = _guard(held)
    app.state.kept = KeptAnswers(held.database.changes())
    metrics.open(held.database, streams=lambda: held.poller.streams)
    await held.poller.start()
    await held.notifier.start()
    telling = asyncio.create_task(_tell_peers(metrics), name="metrics for other processes")
    try:
        yield
    finally:
        telling.cancel()
        await held.poller.stop()
        await held.notifier.stop()
        if held.dashboard is not None:
            await held.dashboard.aclose()
        await to_thread.run_sync(held.exports.close)
        await to_thread.run_sync(metrics.close)
        app.state.kept.close()
        app.state.guard.rates.close()
        held.database.dispose()


async def _tell_peers(metrics: ServiceMetrics) -> None:
    while True:
        await asyncio.sleep(WRITE_EVERY_SECONDS)
        try:
            await to_thread.run_sync(metrics.tell_peers)
        except OSError:
            _log.exception("the counters of requests could not be written")


def _resources(settings: Settings, metrics: ServiceMetrics) -> Resources:
    database = Database(settings.database_url, quotas=settings.quotas.record)
    store = open_artifacts(settings)
    poll, lease = settings.event_poll_seconds, settings.lease_seconds
    limits = UploadLimits(memory_bytes=settings.upload_memory, seconds=settings.upload_seconds)
    return Resources(
        settings=settings,
        database=database,
        store=store,
        sources=DataSources(
            cache=settings.cache_dir,
            folder=settings.data_sets,
            datasets=StoredDatasets(database, store),
        ),
        handler=AttemptHandler(database, store, lease_seconds=lease),
        agents=AgentHandler(database, store, version=version("reflectory"), lease_seconds=lease),
        notifier=AgentNotifier(database),
        figures=Figures(),
        poller=EventPoller(database, interval=poll),
        pages=Pages(),
        exports=Exports(database, store),
        intake=DatasetIntake(database, store, folder=settings.uploads_dir, limits=limits),
        model_intake=ModelIntake(
            database, store, folder=settings.uploads_dir, readers=_model_readers(settings)
        ),
        probes=CapacityLimiter(_PROBES_AT_A_TIME),
        quotas=QuotaBook(database),
        uploads=UploadTurns(_READ_AT_A_TIME),
        streams=OpenStreams(),
        dashboard=dashboard_client(settings),
        metrics=metrics,
    )


def _model_readers(settings: Settings) -> Sequence[ModelReader]:
    limits = GraphReading(
        memory_bytes=settings.network_memory,
        seconds=settings.upload_seconds,
        # An `If` whose bodies have the weights may be decided by an input that a study fixes.
        graph=GraphLimits(file_bytes=settings.largest_network, top_level_share=0),
    )
    return (TensorReader(settings.upload_memory), GraphFileReader(limits))


def _guard(held: Resources) -> Guard:
    settings, database = held.settings, held.database
    return Guard(
        keyring=KeyRing(database),
        logins=Logins(
            database,
            seconds=settings.login_seconds,
            idle_seconds=settings.login_idle_seconds,
        ),
        rates=RateLimits(
            requests=settings.requests_per_minute,
            refusals=settings.refusals_per_minute,
            from_address=settings.address_requests_per_minute,
            counters=SharedCounters(settings.counters_file),
        ),
        quotas=held.quotas,
        admits_local_user=is_loopback(settings.host),
    )
