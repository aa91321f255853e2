"""`serve`, the commands that its child processes are, and `migrate`."""

import signal
import socket
import threading
from pathlib import Path
from typing import Annotated

import typer

from service.commands.connection import (
    REFUSED,
    DataDirOption,
    JsonOption,
    fail,
    print_json,
    settings_from,
)
from service.lifeline import hold_on
from service.server_file import ServerFile
from service.settings import ExecutorName, Settings

_LifelineOption = Annotated[
    str | None,
    typer.Option(
        metavar="FD:PID",
        hidden=True,
        help="End with the supervisor: a pipe's reading end, and its process id.",
    ),
]

_ExecutorOption = Annotated[
    ExecutorName | None,
    typer.Option(help="What runs attempts: local, by default; ray; or inline, for a debugger."),
]


def serve(
    data_dir: DataDirOption = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=0, help="Attempts side by side; by default one per core; 0: none here."),
    ] = None,
    slots_per_gpu: Annotated[
        int | None, typer.Option(min=1, max=64, help="Attempts that share a GPU; by default one.")
    ] = None,
    executor: _ExecutorOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run the whole service on this machine until Ctrl-C; a later start goes on from there."""
    # Only this command needs the database: the others start without it.
    from service.auth import AddressRefused
    from service.children import ChildGivenUp
    from service.supervisor import AlreadyServing, CannotListen
    from service.supervisor import serve as supervise
    from storage.errors import StorageError

    settings = settings_from(
        data_dir=data_dir,
        host=host,
        port=port,
        workers=workers,
        slots_per_gpu=slots_per_gpu,
        executor=executor,
    )
    from service.logs import configure_logging

    configure_logging("serve", settings.log_level, settings.log_format)

    def announce(server: ServerFile) -> None:
        if as_json:
            print_json({"url": server.url, "pid": server.pid, "data_dir": str(settings.data_dir)})
            return
        typer.echo(f"Reflectory answers at {server.url}")
        typer.echo(f"  page        {server.url}/")
        typer.echo(f"  dashboard   {server.url}/dashboard")
        typer.echo(f"  data        {settings.data_dir.absolute()}")

    try:
        supervise(settings, announce=announce)
    except (AddressRefused, AlreadyServing, CannotListen) as error:
        fail(str(error), REFUSED, as_json=as_json)
    except (ChildGivenUp, StorageError, OSError) as error:
        fail(str(error), 1, as_json=as_json)


def api(
    data_dir: DataDirOption = None,
    lifeline: _LifelineOption = None,
    listener: Annotated[
        int | None,
        typer.Option(metavar="FD", hidden=True, help="A listening socket to take over."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Serve the HTTP API alone, over tables that are migrated; `serve` runs it by itself."""
    settings = _begin("api", data_dir, lifeline)
    _check_store(settings, lifeline, as_json=as_json)
    from service.auth import AddressRefused
    from service.server import run_api

    try:
        run_api(settings, listener=None if listener is None else socket.socket(fileno=listener))
    except AddressRefused as error:
        fail(str(error), REFUSED, as_json=as_json)


def coordinator(
    data_dir: DataDirOption = None,
    executor: _ExecutorOption = None,
    lifeline: _LifelineOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask, dispatch and tell: run the studies on this machine; `serve` runs it by itself."""
    settings = _begin("coordinator", data_dir, lifeline, executor=executor)
    _check_store(settings, lifeline, as_json=as_json)
    stop = threading.Event()
    for sign in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sign, lambda _sign, _frame: stop.set())
    from search.errors import ExecutorError
    from service.coordination import AlreadyCoordinating, coordinate

    try:
        coordinate(settings, stop)
    except AlreadyCoordinating as error:
        fail(str(error), REFUSED, as_json=as_json)
    except ExecutorError as error:
        fail(str(error), 1, as_json=as_json)


def migrate(data_dir: DataDirOption = None, as_json: JsonOption = False) -> None:
    """Bring the database to this program's version; `serve` does it by itself."""
    from storage.engine import Database
    from storage.errors import StorageError

    settings = settings_from(data_dir=data_dir)
    try:
        settings.data_dir.mkdir(parents=True, exist_ok=True)
        database = Database(settings.database_url)
        try:
            database.migrate()
        finally:
            database.dispose()
    except (StorageError, OSError) as error:
        fail(str(error), 1, as_json=as_json)
    if as_json:
        print_json({"database": database.url})
    else:
        typer.echo(f"{database.url} has the tables of this version")


def dashboard(lifeline: _LifelineOption = None) -> None:
    """Serve Optuna's dashboard, read-only, on its socket."""
    settings = _begin("dashboard", None, lifeline)
    from service.dashboard import run_dashboard

    run_dashboard(settings)


def _check_store(settings: Settings, lifeline: str | None, *, as_json: bool) -> None:
    """Refuse to start over a store that refuses us; a child that starts again waits for it."""
    from service.artifacts import check_artifacts
    from storage.errors import StoreRefused

    if lifeline is not None:
        return
    try:
        check_artifacts(settings)
    except StoreRefused as error:
        fail(str(error), 1, as_json=as_json)


def _begin(
    process: str,
    data_dir: Path | None,
    lifeline: str | None,
    *,
    executor: ExecutorName | None = None,
) -> Settings:
    settings = settings_from(data_dir=data_dir, executor=executor)
    from service.logs import configure_logging

    configure_logging(process, settings.log_level, settings.log_format)
    if lifeline is not None:
        pipe, _, parent = lifeline.partition(":")
        if not (pipe.isdecimal() and parent.isdecimal()):
            raise typer.BadParameter(f"--lifeline is FD:PID, not {lifeline!r}")
        hold_on(int(pipe), parent=int(parent), grace_seconds=settings.shutdown_grace_seconds)
    return settings
