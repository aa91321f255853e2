"""The coordinator's process: settings made into what the coordinator works with."""

import logging
import threading
from contextlib import ExitStack

import optuna

from search.coordinator import Coordinator, Folders
from search.executors import Executor, LocalExecutor, Slot
from search.executors.remote import RemoteExecutor
from search.executors.several import SeveralExecutors
from search.executors.slots import cpu_slots, gpu_slots
from search.front_exports import FrontExports
from search.lane import lane_folder
from search.retention import Retention
from search.room import RoomWatch
from service.artifacts import open_artifacts
from service.locks import hold
from service.machines import coordinator_name
from service.secrets import signing_secret
from service.settings import Settings
from service.webhooks.courier import Courier
from storage.engine import Database

_log = logging.getLogger(__name__)


class AlreadyCoordinating(Exception):
    """Another coordinator of this machine works with the same data directory."""


def coordinate(settings: Settings, stop: threading.Event) -> None:
    """Run every study, on this machine and on those that joined, until `stop` is set.

    Raises:
        AlreadyCoordinating: the data directory has a coordinator.
    """
    # Optuna prints by itself unless told otherwise; its words go where all others go.
    optuna.logging.disable_default_handler()
    optuna.logging.enable_propagation()
    data_dir = settings.data_dir.absolute()
    slots = own_slots(settings)
    _log.info("slots", extra={"names": [slot.name for slot in slots]})
    with ExitStack() as held:
        try:
            held.enter_context(hold(data_dir / "coordinator.lock"))
        except BlockingIOError as error:
            raise AlreadyCoordinating(
                f"another coordinator works with the data directory {data_dir}; "
                "stop that one, or choose another --data-dir"
            ) from error
        database = Database(settings.database_url)
        held.callback(database.dispose)
        # The lock makes this name ours alone, and the same after a restart: the claims of a
        # coordinator that was killed go on at once.
        owner = coordinator_name(data_dir)
        executor = _executor(settings, slots, database, owner=owner)
        held.callback(executor.close)
        store = open_artifacts(settings)
        exports = FrontExports(database, store, lane=lane_folder(data_dir / "lanes", "cpu"))
        held.callback(exports.close)
        held.enter_context(Retention(database, store))
        secret = signing_secret(settings)
        courier = Courier(database, secret=secret, allow_private=settings.webhook_private)
        held.enter_context(courier)
        held.enter_context(RoomWatch(database, store, owner=owner))
        Coordinator(
            database,
            executor,
            optuna_url=settings.optuna_url,
            api_url=settings.url or f"http://{settings.host}:{settings.port}",
            owner=owner,
            folders=Folders(
                data=settings.data_sets,
                cache=settings.cache_dir,
                lanes=data_dir / "lanes",
                alive=settings.coordinator_alive,
            ),
            lease_seconds=settings.lease_seconds,
            slot_wait_seconds=settings.slot_wait_seconds,
            log_format=settings.log_format,
            ended=exports.ended,
        ).run(stop)


def own_slots(settings: Settings) -> tuple[Slot, ...]:
    """The slots of this machine, of which there may be none."""
    if settings.workers == 0:
        return ()
    return (*gpu_slots(settings.slots_per_gpu), *cpu_slots(settings.workers))


def _executor(
    settings: Settings, slots: tuple[Slot, ...], database: Database, *, owner: str
) -> Executor:
    """This machine's slots, where it has any, and those of all machines that join."""
    remote = RemoteExecutor(
        database, owner=owner, lease_seconds=settings.lease_seconds, logs=settings.logs_dir
    )
    if not slots:
        return SeveralExecutors(remote)
    return SeveralExecutors(LocalExecutor(slots, logs=settings.logs_dir), remote)
