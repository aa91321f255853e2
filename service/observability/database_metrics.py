"""What the database knows, as metrics: read at scrapes, and never so often that it is a load."""

import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, TimeoutError
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import final

from prometheus_client.metrics_core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy.exc import SQLAlchemyError

from search.dispatch.coordinator_report import CLAIM_LEASES, CoordinatorFigures
from search.running.ask_times import BUCKETS
from service.observability.device_views import device_views
from storage.engine import Database
from storage.errors import StorageError
from storage.fleet.coordinators import CoordinatorRecord, Coordinators
from storage.fleet.fleet_counts import AttemptTotal, FleetCounts
from storage.fleet.slot_use import Place, SlotUse
from storage.records import AttemptKind, AttemptState, StudyState, TrialState

_KEPT_SECONDS = 5.0
"""Scrapes within this time share one look at the database."""

_SHARE = 0.02
"""How much of the time may be spent on looks, however often somebody scrapes."""

_PATIENCE_SECONDS = 3.0
"""How long a scrape waits for the database; Prometheus itself gives up after ten seconds."""

_REMEMBERED_SECONDS = 86_400.0
"""For how long a coordinator is shown that was killed: long enough for an alert."""


@dataclass(frozen=True, kw_only=True)
class _Look:
    """What one look at the database found."""

    at: datetime
    studies: dict[StudyState, int]
    trials: dict[TrialState, int]
    attempts: dict[tuple[AttemptKind, AttemptState], AttemptTotal]
    running_seconds: float
    measuring_seconds: float
    artifacts: tuple[int, int]
    coordinators: Sequence[CoordinatorRecord]
    taken: set[Place]


@final
class DatabaseMetrics(Collector):
    """The database's part of `/metrics`; where it does not answer, only that is reported."""

    def __init__(self, database: Database, *, lease_seconds: float) -> None:
        self._database = database
        self._claim_seconds = CLAIM_LEASES * lease_seconds
        # One look at a time, in a thread of its own: no scrape waits longer than it has patience.
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="metrics")
        self._lock = threading.Lock()
        self._future: Future[_Look] | None = None
        self._good_until = 0.0

    def close(self) -> None:
        """Begin no further look."""
        self._threads.shutdown(wait=True, cancel_futures=True)

    def collect(self) -> Iterator[Metric]:
        """Everything, or that the database is away."""
        look = self._look()
        yield GaugeMetricFamily(
            "reflectory_database_up",
            "Whether the database answers; without it only this process is reported",
            value=look is not None,
        )
        if look is not None:
            yield from _work(look)
            living = [
                coordinator
                for coordinator in look.coordinators
                if look.at - coordinator.seen_at <= timedelta(seconds=self._claim_seconds)
            ]
            yield from _places(living, look.taken)
            yield from _coordinators(look, living)

    def _look(self) -> _Look | None:
        with self._lock:
            if self._future is None or (
                self._future.done() and time.monotonic() >= self._good_until
            ):
                self._future = self._threads.submit(self._read)
            future = self._future
        try:
            return future.result(_PATIENCE_SECONDS)
        except (StorageError, SQLAlchemyError, TimeoutError):
            return None

    def _read(self) -> _Look:
        began = time.monotonic()
        self._good_until = began
        with self._database.read() as session:
            counts, now = FleetCounts(session), datetime.now(UTC)
            look = _Look(
                at=now,
                studies=counts.studies(),
                trials=counts.open_trials(),
                attempts=counts.attempts(),
                running_seconds=counts.running_seconds(),
                measuring_seconds=counts.measuring_seconds(),
                artifacts=counts.artifacts(),
                coordinators=Coordinators(session).alive(now, within_seconds=_REMEMBERED_SECONDS),
                taken=SlotUse(session).taken(),
            )
        ended = time.monotonic()
        self._good_until = ended + max(_KEPT_SECONDS, (ended - began) / _SHARE)
        return look


def _work(look: _Look) -> Iterator[Metric]:
    """Studies, trials, attempts and what they left behind."""
    studies = GaugeMetricFamily(
        "reflectory_studies", "Studies by state; deleted ones are gone", labels=("state",)
    )
    for state, count in look.studies.items():
        studies.add_metric((state.value,), count)
    yield studies
    trials = GaugeMetricFamily(
        "reflectory_trials",
        "Trials that wait (queued) and that are at work (running), in studies in progress",
        labels=("state",),
    )
    for state, count in look.trials.items():
        trials.add_metric((state.value,), count)
    yield trials
    attempts = GaugeMetricFamily(
        "reflectory_attempts",
        "Attempts of all studies there are: running, ended by their own report, or lost",
        labels=("kind", "outcome"),
    )
    seconds = Counter[AttemptKind]()
    for (kind, state), total in look.attempts.items():
        attempts.add_metric((kind.value, state.value), total.count)
        seconds[kind] += total.device_seconds  # pyright: ignore[reportArgumentType]  # it adds floats too
    yield attempts
    device = GaugeMetricFamily(
        "reflectory_device_seconds",
        "Share of a device (a core on CPUs) x time, over the attempts of all studies there are",
        labels=("kind",),
    )
    for kind, taken in seconds.items():
        device.add_metric((kind.value,), taken)
    yield device
    yield GaugeMetricFamily(
        "reflectory_study_running_seconds",
        "How long the studies that there are were running, all together",
        value=look.running_seconds,
    )
    yield GaugeMetricFamily(
        "reflectory_measuring_seconds",
        "How long throughput measurements had their device alone, over the studies that there are",
        value=look.measuring_seconds,
    )
    share = look.measuring_seconds / look.running_seconds if look.running_seconds else 0.0
    yield GaugeMetricFamily(
        "reflectory_measuring_ratio",
        "The second of these by the first: the share of time that measuring took",
        value=min(1.0, share),
    )
    count, size = look.artifacts
    yield GaugeMetricFamily("reflectory_artifacts", "Files that are stored", value=count)
    yield GaugeMetricFamily("reflectory_artifact_bytes", "Their bytes", value=size)


def _places(living: Sequence[CoordinatorRecord], taken: set[Place]) -> Iterator[Metric]:
    """Slots and measurement locks of the coordinators that live, and of machines that joined."""
    total, busy = Counter[str](), Counter[str]()
    locks = Counter[tuple[str, str]]()
    for view in device_views(living):
        for slot in view.slots.values():
            total[slot.model] += 1
            busy[slot.model] += view.is_taken(slot.name, taken)
        here = next((state for state in ("measuring", "waiting") if state in view.told), "free")
        for state in ("free", "waiting", "measuring"):
            locks[view.model, state] += state == here
    slots = GaugeMetricFamily(
        "reflectory_slots", "Places where attempts can run, by device model", labels=("model",)
    )
    used = GaugeMetricFamily(
        "reflectory_slots_busy", "Those with an attempt on them", labels=("model",)
    )
    for model, count in total.items():
        slots.add_metric((model,), count)
        used.add_metric((model,), busy[model])
    yield from (slots, used)
    measuring = GaugeMetricFamily(
        "reflectory_lanes",
        "Measurement locks, one per device: free, waiting for batches under way, or measuring",
        labels=("model", "state"),
    )
    for place, count in locks.items():
        measuring.add_metric(place, count)
    yield measuring


def _coordinators(look: _Look, living: Sequence[CoordinatorRecord]) -> Iterator[Metric]:
    """The coordinators, and how long their samplers take."""
    yield GaugeMetricFamily(
        "reflectory_coordinators", "Coordinators that were seen lately", value=len(living)
    )
    seen = GaugeMetricFamily(
        "reflectory_coordinator_last_seen_seconds",
        "How long ago a coordinator reported; one that stopped in order is gone",
        labels=("coordinator",),
    )
    asks = HistogramMetricFamily(
        "reflectory_ask_seconds",
        "From asking a sampler to the suggestion in the queue, since the coordinator started",
        labels=("coordinator", "sampler"),
    )
    thinking = GaugeMetricFamily(
        "reflectory_asks_in_progress",
        "Suggestions that a sampler thinks about",
        labels=("coordinator",),
    )
    waiting = GaugeMetricFamily(
        "reflectory_exchanges_waiting",
        "Studies whose sampler waits until those of other studies have thought",
        labels=("coordinator",),
    )
    for coordinator in look.coordinators:
        age = (look.at - coordinator.seen_at).total_seconds()
        seen.add_metric((coordinator.owner,), max(0.0, age))
    for coordinator in living:
        figures = CoordinatorFigures.model_validate(coordinator.figures)
        thinking.add_metric((coordinator.owner,), figures.asks_in_progress)
        waiting.add_metric((coordinator.owner,), figures.exchanges_waiting)
        for sampler, histogram in figures.asks.items():
            counts = histogram.counts
            bounds = (*(str(bound) for bound in BUCKETS), "+Inf")
            within = [sum(counts[: index + 1]) for index in range(len(counts))]
            buckets = list(zip(bounds, within, strict=True))
            asks.add_metric((coordinator.owner, sampler), buckets, histogram.seconds)
    yield from (seen, asks, thinking, waiting)
