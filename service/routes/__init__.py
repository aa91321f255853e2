"""The routes, one file per aggregate."""

from service.routes import (
    attempts,
    catalog,
    dashboard,
    datasets,
    devices,
    events,
    figures,
    health,
    metrics,
    pages,
    studies,
    trials,
    webhooks,
)

ROUTERS = (
    studies.router,
    figures.router,
    trials.router,
    webhooks.router,
    events.router,
    datasets.router,
    devices.router,
    catalog.router,
    health.router,
    metrics.router,
    attempts.router,
    pages.router,
    dashboard.router,
)

__all__ = ["ROUTERS"]
