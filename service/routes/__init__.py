"""The routes, one file per aggregate."""

from service.routes import (
    attempts,
    catalog,
    dashboard,
    datasets,
    events,
    figures,
    health,
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
    catalog.router,
    health.router,
    attempts.router,
    pages.router,
    dashboard.router,
)

__all__ = ["ROUTERS"]
