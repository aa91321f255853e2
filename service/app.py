"""The HTTP application: what it holds open, its routes, and what holds for every request."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path

from anyio import CapacityLimiter, to_thread
from fastapi import FastAPI
from starlette.staticfiles import StaticFiles

from search.attempts import AttemptDesk
from search.figures import Figures
from search.machine_desk import MachineDesk
from search.tasks import DataSources
from search.uploads import UploadLimits
from service import openapi
from service.artifacts import open_artifacts
from service.auth import is_loopback
from service.cookies import LoginCookies
from service.dataset_intake import DatasetIntake
from service.dataset_shelf import StoredDatasets
from service.errors import add_error_handlers
from service.events import EventPoller
from service.exports import Exports
from service.gate import Doors, Gate, Guard
from service.keyring import KeyRing
from service.machine_bell import MachineBell
from service.metrics import ServiceMetrics
from service.middleware import BodyLimit, HeadAsGet, ListenersMayLeave, PlainHeaders
from service.model_intake import ModelIntake
from service.rate_limits import RateLimits
from service.request_watch import RequestWatch
from service.resources import Resources
from service.routes import ROUTERS
from service.routes.attempts import PREFIX as ATTEMPTS
from service.routes.audit import PREFIX as AUDIT
from service.routes.dashboard import dashboard_client
from service.routes.datasets import PREFIX as DATASETS
from service.routes.events import StreamIsOver, no_more_events
from service.routes.keys import PREFIX as KEYS
from service.routes.login import LOGIN, LOGOUT
from service.routes.model_pages import PREFIX as MODEL_PAGES
from service.routes.models import PREFIX as MODELS
from service.routes.pages import DATASETS as DATASET_PAGES
from service.routes.webhooks import SECRET as WEBHOOK_SECRET
from service.routes.workers import PREFIX as WORKERS
from service.secrets import signing_secret
from service.settings import Settings
from service.telemetry import telemetry_config
from service.uploads import UploadRefused, refuse_upload
from service.web.pages import Pages
from storage.artifacts import ArtifactStore
from storage.engine import Database

# Each may take all the memory that the settings allow for one.
_READ_AT_A_TIME = 2

_ASSETS = Path(__file__).parent / "web" / "assets"

_DOORS = Doors(
    exempt=(ATTEMPTS,),
    open=("/healthz", "/readyz", LOGIN, LOGOUT, "/assets/"),
    loopback=("/metrics",),
    admin=(KEYS, AUDIT, WEBHOOK_SECRET),
    work=(WORKERS,),
)


def create_app(settings: Settings) -> FastAPI:
    """The application over a database that is migrated already."""
    metrics = ServiceMetrics(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        database = Database(settings.database_url)
        store = open_artifacts(settings)
        poller = EventPoller(database, interval=settings.event_poll_seconds)
        bell = MachineBell(database, interval=settings.event_poll_seconds)
        dashboard = dashboard_client(settings)
        exports = Exports(database, store)
        intake = _intake(settings, database, store)
        await to_thread.run_sync(intake.sweep)
        app.state.resources = Resources(
            settings=settings,
            database=database,
            store=store,
            sources=DataSources(
                cache=settings.cache_dir,
                folder=settings.data_sets,
                datasets=StoredDatasets(database, store),
            ),
            desk=AttemptDesk(database, store, lease_seconds=settings.lease_seconds),
            machines=MachineDesk(
                database, version=version("reflectory"), lease_seconds=settings.lease_seconds
            ),
            bell=bell,
            figures=Figures(),
            poller=poller,
            pages=Pages(),
            exports=exports,
            intake=intake,
            model_intake=ModelIntake(
                database,
                store,
                folder=settings.uploads_dir,
                memory_bytes=settings.upload_memory,
            ),
            readers=CapacityLimiter(_READ_AT_A_TIME),
            dashboard=dashboard,
            metrics=metrics,
        )
        app.state.guard = Guard(
            keyring=KeyRing(database),
            cookies=LoginCookies(signing_secret(settings), seconds=settings.login_seconds),
            rates=RateLimits(
                requests=settings.requests_per_minute, refusals=settings.refusals_per_minute
            ),
            admits_local_user=is_loopback(settings.host),
        )
        metrics.open(database, poller)
        await poller.start()
        await bell.start()
        try:
            yield
        finally:
            await poller.stop()
            await bell.stop()
            if dashboard is not None:
                await dashboard.aclose()
            await to_thread.run_sync(exports.close)
            await to_thread.run_sync(metrics.close)
            database.dispose()

    app = FastAPI(
        title="Reflectory",
        summary="Pareto fronts of accuracy, parameter count and measured throughput",
        version=version("reflectory"),
        lifespan=lifespan,
        telemetry=telemetry_config(enabled=settings.telemetry),
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=lambda route: route.name,
    )
    add_error_handlers(app)
    app.add_exception_handler(StreamIsOver, no_more_events)
    app.add_exception_handler(UploadRefused, refuse_upload)
    for router in ROUTERS:
        app.include_router(router)
    app.mount("/assets", StaticFiles(directory=_ASSETS), name="assets")
    # The last one added sees a request first.
    app.add_middleware(
        BodyLimit,
        limit=settings.max_spec_bytes,
        limits={
            ATTEMPTS: settings.max_artifact_bytes,
            DATASETS: settings.largest_upload,
            DATASET_PAGES: settings.largest_upload,
            MODELS: settings.largest_upload,
            MODEL_PAGES: settings.largest_upload,
        },
    )
    app.add_middleware(Gate, doors=_DOORS)
    app.add_middleware(HeadAsGet)
    app.add_middleware(PlainHeaders)
    app.add_middleware(ListenersMayLeave)
    app.add_middleware(RequestWatch, counters=metrics.requests, access_log=settings.access_log)
    openapi.describe(app)
    return app


def close_streams(app: FastAPI) -> None:
    """End all that waits in a running application, so that its server can stop."""
    app.state.resources.poller.close_streams()
    app.state.resources.bell.close()


def _intake(settings: Settings, database: Database, store: ArtifactStore) -> DatasetIntake:
    limits = UploadLimits(memory_bytes=settings.upload_memory, seconds=settings.upload_seconds)
    return DatasetIntake(database, store, folder=settings.uploads_dir, limits=limits)
