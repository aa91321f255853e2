"""The process, or thread, that has agents placed on a Ray cluster."""

import logging
import signal
import threading
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial

from search.agents.launchers.ray import Cluster, Demand, keep_agents_placed
from service.data_dir.machine_name import coordinator_name, machine_of
from service.processes.agents_key import AgentsKey
from service.processes.executors import api_url
from service.settings import Settings
from storage.engine import Database
from storage.errors import DatabaseUnavailable
from storage.fleet.bookings import Bookings
from storage.fleet.machines import Machines
from storage.fleet.waiting_work import WaitingWork
from storage.records import BookingState

_log = logging.getLogger(__name__)

_COMMAND = ("-m", "service.cli", "worker")


def launch_until_told(settings: Settings) -> None:
    """Have agents placed until SIGTERM or SIGINT, see `launch`."""
    stop = threading.Event()
    for sign in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sign, lambda _sign, _frame: stop.set())
    launch(settings, stop)


@contextmanager
def launch_beside(settings: Settings) -> Generator[None]:
    """Have agents placed by a thread of this process meanwhile, see `launch`."""
    stop = threading.Event()
    thread = threading.Thread(target=launch, args=(settings, stop), name="launcher")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def launch(settings: Settings, stop: threading.Event) -> None:
    """Have agents placed on the Ray cluster, for the work that waits, until `stop` is set.

    Raises:
        ExecutorError: Ray is not installed.
    """
    environment = {"REFLECTORY_CONTAINMENT": settings.containment}
    if settings.data_sets is not None:
        environment["REFLECTORY_DATA"] = str(settings.data_sets.absolute())
    cluster = Cluster(
        address=settings.ray_address,
        scratch=settings.ray_scratch,
        cpu_slots=settings.workers,
        slots_per_gpu=settings.slots_per_gpu or 1,
        open=settings.ray_open,
        most_slots=settings.ray_most_slots,
        url=api_url(settings),
        command=_COMMAND,
        environment=environment,
    )
    database = Database(settings.database_url)
    owner = coordinator_name(settings.data_dir.absolute())
    key = AgentsKey(database, name=f"agents on Ray, of {machine_of(owner)}"[:100])
    lease = timedelta(seconds=settings.lease_seconds)
    try:
        keep_agents_placed(
            cluster,
            partial(_demand, database, key, lease),
            errors=settings.logs_dir / "ray-driver.stderr.log",
            stop=stop,
        )
    finally:
        with suppress(DatabaseUnavailable):
            key.revoke()
        database.dispose()


def _demand(database: Database, key: AgentsKey, lease: timedelta) -> Demand:
    """What waits and what is free; as if there were nothing while the database is away."""
    try:
        text = key.text()
        with database.read() as session:
            waiting = WaitingWork(session).by_device()
            machines = Machines(session).list()
            bookings = Bookings(session).all()
    except DatabaseUnavailable:
        return Demand()
    since = datetime.now(UTC) - lease
    joined = [one for one in machines if one.seen_at >= since and not one.leaving]
    taken = {(one.machine_id, one.place) for one in bookings if one.state != BookingState.EXITED}
    free = Counter[str](
        "cpu" if place.device == "cpu" else "cuda"
        for machine in joined
        for place in machine.slots
        if (machine.id, place.name) not in taken
    )
    at_work = {machine_id for machine_id, _ in taken}
    return Demand.model_validate(
        {
            "waiting": dict(waiting),
            "free": dict(free),
            "joined": tuple(one.name for one in joined),
            "busy": tuple(one.name for one in machines if one.id in at_work),
            "key": text,
        }
    )
