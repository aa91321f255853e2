"""The routes, one file per aggregate."""

from service.routes import (
    attempts,
    catalog,
    dashboard,
    datasets,
    events,
    health,
    pages,
    studies,
    trials,
)

ROUTERS = (
    studies.router,
    trials.router,
    events.router,
    datasets.router,
    catalog.router,
    health.router,
    attempts.router,
    pages.router,
    dashboard.router,
)

__all__ = ["ROUTERS"]
