"""Everything that `/metrics` shows: of this process, of its machine, and of the database."""

import platform
import shutil
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from service.observability.database_metrics import DatabaseMetrics
from service.observability.peers import WithPeers
from service.observability.request_metrics import RequestMetrics
from service.settings import Settings
from storage.blobs.places import FolderPlace
from storage.engine import Database


@final
class ServiceMetrics:
    """The metrics of one application, in a registry of its own."""

    def __init__(self, settings: Settings) -> None:
        self.requests = RequestMetrics()
        self._settings = settings
        self._registry = CollectorRegistry()
        self._streams: Callable[[], int] = lambda: 0
        counted = (self.requests, _Streams(lambda: self._streams()))
        # API processes that count requests together are also asked for them together.
        shared = settings.counters_file
        self._peers = None if shared is None else WithPeers(counted, shared.parent / "api-metrics")
        for collector in counted if self._peers is None else (self._peers,):
            self._registry.register(collector)
        self._registry.register(_Host(settings))
        ProcessCollector(registry=self._registry)
        self._opened: tuple[Collector, ...] = ()
        self._database: DatabaseMetrics | None = None

    def open(self, database: Database, *, streams: Callable[[], int]) -> None:
        """Show too what is known only while the application runs.

        Args:
            database: what is counted.
            streams: how many event streams are open.
        """
        self._database = DatabaseMetrics(database, lease_seconds=self._settings.lease_seconds)
        self._streams = streams
        self._opened = (self._database,)
        for collector in self._opened:
            self._registry.register(collector)

    def tell_peers(self) -> None:
        """Let the other API processes of this machine know what was counted here, if any."""
        if self._peers is not None:
            self._peers.write()

    def close(self) -> None:
        """Show that no more."""
        self._streams = lambda: 0
        self.tell_peers()
        for collector in self._opened:
            self._registry.unregister(collector)
        if self._database is not None:
            self._database.close()
        self._opened, self._database = (), None

    def text(self, accept: str) -> tuple[bytes, str]:
        """All metrics in the form that an Accept header asks for, and what form that is."""
        encode, media_type = choose_encoder(accept)
        return encode(self._registry), media_type


@final
class _Host(Collector):
    """What runs, and the room that is left for it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def collect(self) -> Iterator[Metric]:
        build = GaugeMetricFamily(
            "reflectory_build_info",
            "Always 1; its labels say what runs",
            labels=("version", "python"),
        )
        build.add_metric((version("reflectory"), platform.python_version()), 1)
        yield build
        free = GaugeMetricFamily(
            "reflectory_disk_free_bytes",
            "Room on the disk of a folder, while the folder can be looked at",
            labels=("folder",),
        )
        folders = {"data": self._settings.data_dir}
        place = self._settings.artifacts_place
        if isinstance(place, FolderPlace):
            folders["artifacts"] = place.path
        for name, folder in folders.items():
            found = _free_bytes(folder)
            if found is not None:
                free.add_metric((name,), found)
        yield free
        yield GaugeMetricFamily(
            "reflectory_disk_reserve_bytes",
            "With less room than this on the artifacts' disk nothing is stored, and studies wait",
            value=self._settings.disk_reserve,
        )


@final
class _Streams(Collector):
    def __init__(self, streams: Callable[[], int]) -> None:
        self._streams = streams

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "reflectory_event_streams",
            "Event streams that are open at this machine's API processes",
            value=self._streams(),
        )


def _free_bytes(folder: Path) -> int | None:
    try:
        there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
        return shutil.disk_usage(there).free
    except OSError:
        return None
