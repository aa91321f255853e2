"""What this process counts of its requests, for `/metrics`."""

from collections.abc import Iterator
from typing import Any, final

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from service.http.refusals import REASONS, Reason
from service.http.request_watch import RequestSeen
from storage.tenant_quota import QUOTA_NAMES

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@final
class RequestMetrics(Collector):
    """Counts requests as they begin and as they are answered."""

    def __init__(self) -> None:
        # In no registry of the library's own: its families are shown without `_created` below.
        self._requests = Counter(
            "reflectory_http_requests",
            "Requests that were answered; status none: the client left before",
            ("method", "route", "status"),
            registry=None,
        )
        self._refusals = Counter(
            "reflectory_http_refusals",
            "Requests that were turned away before a route saw them, by why",
            ("reason",),
            registry=None,
        )
        # From the first scrape on, so that the first refusal is seen as a rise.
        for reason in REASONS:
            self._refusals.labels(reason)
        self._seconds = Histogram(
            "reflectory_http_request_seconds",
            "From the head of a request to the head of its answer",
            ("method", "route"),
            buckets=_BUCKETS,
            registry=None,
        )
        self._in_progress = Gauge(
            "reflectory_http_requests_in_progress",
            "Requests that are not answered in full yet, event streams included",
            registry=None,
        )
        self._over_quota = Counter(
            "reflectory_quota_refusals",
            "Requests that were refused for a quota of their tenant",
            ("quota",),
            registry=None,
        )
        for name in QUOTA_NAMES:
            self._over_quota.labels(name)
        self._uploads = Gauge(
            "reflectory_uploads_in_progress",
            "Requests in progress that bring a file: data sets, models, and what workers store",
            registry=None,
        )

    def over_quota(self, name: str) -> None:
        """A request was refused for a quota of that name."""
        self._over_quota.labels(name).inc()

    def begun(self, *, brings_file: bool) -> None:
        """A request came in."""
        self._in_progress.inc()
        if brings_file:
            self._uploads.inc()

    def over(self, *, brings_file: bool) -> None:
        """A request is over, one way or another."""
        self._in_progress.dec()
        if brings_file:
            self._uploads.dec()

    def answered(self, seen: RequestSeen) -> None:
        """The head of an answer went out, or nobody is there any more to take it."""
        status = "none" if seen.status is None else str(seen.status)
        self._requests.labels(seen.method, seen.route, status).inc()
        self._seconds.labels(seen.method, seen.route).observe(seen.seconds)

    def refused(self, reason: Reason) -> None:
        """A request was turned away before a route saw it."""
        self._refusals.labels(reason).inc()

    def collect(self) -> Iterator[Metric]:
        """The families, without the times at which series began: no user looks for them."""
        counters: tuple[Any, ...] = (
            self._requests,
            self._refusals,
            self._seconds,
            self._in_progress,
            self._uploads,
            self._over_quota,
        )
        for counter in counters:
            for family in counter.collect():
                family.samples = [
                    sample for sample in family.samples if not sample.name.endswith("_created")
                ]
                yield family
