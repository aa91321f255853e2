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
    reports,
    studies,
    study_pages,
    trials,
    webhooks,
)

ROUTERS = (
    studies.router,
    figures.router,
    reports.router,
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
    study_pages.router,
    dashboard.router,
)

__all__ = ["ROUTERS"]
