"""The coordinator's process: settings made into what the coordinator works with."""

import logging
import signal
import threading
from contextlib import ExitStack

import optuna

from search.agents.executors.remote import RemoteExecutor
from search.agents.launchers.ray import check_installed
from search.dispatch.coordinator import Coordinator, Folders
from search.fronts.front_exports import FrontExports
from search.fronts.retention import Retention
from search.measuring.measurement_lock import lock_folder
from search.pandas_import import keep_pandas_out
from search.running.store_watch import StoreWatch
from service.data_dir.artifact_store import open_artifacts
from service.data_dir.locks import hold
from service.data_dir.machine_name import coordinator_name
from service.data_dir.secrets import signing_secret
from service.processes import tracer
from service.processes.agent_child import agent_beside
from service.processes.executors import slot_wait_seconds, wants_own_agent
from service.processes.launching import launch_beside
from service.settings import Settings
from service.webhooks.courier import Courier
from storage.engine import Database

_log = logging.getLogger(__name__)

_JOIN_SECONDS = 120.0
"""How long this machine's own agent may take to start and to join, on a machine that is busy."""


class AlreadyCoordinating(Exception):
    """Another coordinator of this machine works with the same data directory."""


def coordinate_until_told(settings: Settings) -> None:
    """Run every study until SIGTERM or SIGINT, see `coordinate`."""
    stop = threading.Event()
    for sign in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sign, lambda _sign, _frame: stop.set())
    coordinate(settings, stop)


def coordinate(settings: Settings, stop: threading.Event) -> None:
    """Run every study on the machines that joined, until `stop` is set.

    Where nobody else serves this machine's own slots, an agent is started for them.

    Raises:
        AlreadyCoordinating: the data directory has a coordinator.
        ExecutorError: the executor needs what is not installed.
    """
    tracer.keep_out()
    keep_pandas_out()
    # Optuna prints by itself unless told otherwise; its words go where all others go.
    optuna.logging.disable_default_handler()
    optuna.logging.enable_propagation()
    # Samplers make studies in memory, one per suggestion, of which it would tell.
    logging.getLogger("optuna.storages._in_memory").setLevel(logging.WARNING)
    data_dir = settings.data_dir.absolute()
    with ExitStack() as held:
        try:
            held.enter_context(hold(data_dir / "coordinator.lock"))
        except BlockingIOError as error:
            raise AlreadyCoordinating(
                f"another coordinator works with the data directory {data_dir}; "
                "stop that one, or choose another --data-dir"
            ) from error
        database = Database(settings.database_url, quotas=settings.quotas.record)
        held.callback(database.dispose)
        # The lock makes this name ours alone, and the same after a restart: the claims of a
        # coordinator that was killed go on at once.
        owner = coordinator_name(data_dir)
        executor = RemoteExecutor(
            database, owner=owner, lease_seconds=settings.lease_seconds, logs=settings.logs_dir
        )
        held.callback(executor.close)
        if settings.executor == "ray":
            check_installed()
            if not settings.has_launcher:
                held.enter_context(launch_beside(settings))
        elif wants_own_agent(settings) and not settings.has_own_agent:
            held.enter_context(agent_beside(settings, database, owner=owner))
        store = open_artifacts(settings)
        exports = FrontExports(database, store, lock=lock_folder(data_dir / "lanes", "cpu"))
        held.callback(exports.close)
        held.enter_context(Retention(database, store))
        secret = signing_secret(settings)
        courier = Courier(database, secret=secret, allow_private=settings.webhook_private)
        held.enter_context(courier)
        held.enter_context(StoreWatch(database, store, owner=owner))
        Coordinator(
            database,
            executor,
            optuna_url=settings.optuna_url if settings.optuna_copy else None,
            owner=owner,
            folders=Folders(
                data=settings.data_sets,
                cache=settings.cache_dir,
                locks=data_dir / "lanes",
                alive=settings.coordinator_alive,
            ),
            lease_seconds=settings.lease_seconds,
            slot_wait_seconds=slot_wait_seconds(settings),
            join_seconds=_JOIN_SECONDS if wants_own_agent(settings) else 0.0,
            log_format=settings.log_format,
            ended=exports.ended,
        ).run(stop)
