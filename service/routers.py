"""The routes, one file per aggregate."""

from service.api.agents import routes as workers
from service.api.audit import routes as audit
from service.api.catalog import routes as catalog
from service.api.collections import routes as collections
from service.api.dashboard import routes as dashboard
from service.api.datasets import routes as datasets
from service.api.devices import routes as devices
from service.api.events import routes as events
from service.api.figures import routes as figures
from service.api.fronts import routes as fronts
from service.api.health import routes as health
from service.api.keys import routes as keys
from service.api.metrics import routes as metrics
from service.api.models import routes as models
from service.api.papers import routes as papers
from service.api.quotas import routes as quota
from service.api.studies import routes as studies
from service.api.trials import routes as trials
from service.api.webhooks import routes as webhooks
from service.pages import assets, documentation, login
from service.pages import form as form_pages
from service.pages import report as reports
from service.pages import studies as study_pages
from service.pages.lists import collections as collection_pages
from service.pages.lists import compare, study_edits
from service.pages.lists import devices as device_pages
from service.pages.lists import overview as pages
from service.pages.lists import papers as paper_pages
from service.pages.lists import uploads as upload_pages

ROUTERS = (
    studies.router,
    fronts.router,
    figures.router,
    reports.router,
    trials.router,
    webhooks.router,
    events.router,
    collections.router,
    datasets.router,
    models.router,
    devices.router,
    quota.router,
    catalog.router,
    papers.router,
    keys.router,
    audit.router,
    health.router,
    metrics.router,
    workers.router,
    login.router,
    assets.router,
    pages.router,
    compare.router,
    device_pages.router,
    form_pages.router,
    upload_pages.router,
    paper_pages.router,
    collection_pages.router,
    study_edits.router,
    documentation.router,
    study_pages.router,
    dashboard.router,
)

__all__ = ["ROUTERS"]
