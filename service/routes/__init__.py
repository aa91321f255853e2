"""The routes, one file per aggregate."""

from service.routes import (
    attempts,
    audit,
    catalog,
    dashboard,
    datasets,
    devices,
    events,
    figures,
    form_pages,
    health,
    keys,
    login,
    metrics,
    pages,
    reports,
    studies,
    study_pages,
    trials,
    webhooks,
    workers,
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
    keys.router,
    audit.router,
    health.router,
    metrics.router,
    attempts.router,
    workers.router,
    login.router,
    pages.router,
    form_pages.router,
    study_pages.router,
    dashboard.router,
)

__all__ = ["ROUTERS"]
