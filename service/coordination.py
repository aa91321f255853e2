"""The coordinator's process: settings made into what the coordinator works with."""

import logging
import os
import secrets
import socket
import threading

from search.coordinator import Coordinator, Folders
from search.executors import LocalExecutor
from search.executors.slots import cpu_slots, gpu_slots
from service.settings import Settings
from storage.engine import Database

_log = logging.getLogger(__name__)


def coordinate(settings: Settings, stop: threading.Event) -> None:
    """Run every study with attempts on this machine until `stop` is set."""
    slots = (*gpu_slots(), *cpu_slots(settings.workers))
    _log.info("slots", extra={"names": [slot.name for slot in slots]})
    executor = LocalExecutor(slots, logs=settings.logs_dir)
    database = Database(settings.database_url)
    try:
        coordinator = Coordinator(
            database,
            executor,
            optuna_url=settings.optuna_url,
            api_url=settings.url or f"http://{settings.host}:{settings.port}",
            owner=f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}",
            folders=Folders(
                data=settings.data_sets,
                cache=settings.cache_dir,
                lanes=settings.data_dir / "lanes",
                alive=settings.coordinator_alive,
            ),
            lease_seconds=settings.lease_seconds,
        )
        coordinator.run(stop)
    finally:
        # Also when the coordinator could not start; closing twice is harmless.
        executor.close()
        database.dispose()
