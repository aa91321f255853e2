"""`serve`, the commands that its child processes are, and `migrate`."""

from pathlib import Path
from typing import Annotated

import typer

from service.commands.connection import (
    REFUSED,
    DataDirOption,
    JsonOption,
    SlotMemoryOption,
    fail,
    print_json,
    settings_of_server,
)
from service.data_dir.server_file import ServerFile
from service.settings import ExecutorName, Settings

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
    apis: Annotated[
        int | None, typer.Option(min=1, max=64, help="API processes; by default one.")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Attempts side by side; by default one per core; 0: none here, or with "
            "--slots-per-gpu those of the GPUs alone.",
        ),
    ] = None,
    slots_per_gpu: Annotated[
        int | None, typer.Option(min=1, max=64, help="Attempts that share a GPU; by default one.")
    ] = None,
    slot_memory: SlotMemoryOption = None,
    executor: _ExecutorOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run the whole service on this machine until Ctrl-C; a later start goes on from there."""
    # Only this command needs the database: the others start without it.
    from service.auth.listeners import CannotListen
    from service.auth.origins import AddressRefused
    from service.processes.children import ChildGivenUp
    from service.processes.forking import ForkRefused
    from service.processes.supervisor import AlreadyServing
    from service.processes.supervisor import serve as supervise
    from storage.errors import StorageError

    settings = settings_of_server(
        data_dir=data_dir,
        host=host,
        port=port,
        apis=apis,
        workers=workers,
        slots_per_gpu=slots_per_gpu,
        slot_memory=slot_memory,
        executor=executor,
    )
    from service.observability.logs import configure_logging

    configure_logging("serve", settings.log_level, settings.log_format)
    _outlive_attempts()

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
    except (ChildGivenUp, ForkRefused, StorageError, OSError) as error:
        fail(str(error), 1, as_json=as_json)


def api(
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Serve the HTTP API alone, over tables that are migrated; `serve` runs it by itself."""
    settings = _begin("api", data_dir)
    _outlive_attempts()
    _check_store(settings, as_json=as_json)
    from service.auth.listeners import CannotListen
    from service.auth.origins import AddressRefused
    from service.processes.api_process import run_api

    try:
        run_api(settings)
    except (AddressRefused, CannotListen) as error:
        fail(str(error), REFUSED, as_json=as_json)


def coordinator(
    data_dir: DataDirOption = None,
    executor: _ExecutorOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask, dispatch and tell; `serve` runs it by itself, this one with an agent as its child."""
    settings = _begin("coordinator", data_dir, executor=executor)
    _outlive_attempts()
    _check_store(settings, as_json=as_json)
    from search.errors import ExecutorError
    from service.processes.coordination import AlreadyCoordinating, coordinate_until_told

    try:
        coordinate_until_told(settings)
    except AlreadyCoordinating as error:
        fail(str(error), REFUSED, as_json=as_json)
    except ExecutorError as error:
        fail(str(error), 1, as_json=as_json)


def migrate(data_dir: DataDirOption = None, as_json: JsonOption = False) -> None:
    """Bring the database to this program's version; `serve` does it by itself."""
    from storage.engine import Database
    from storage.errors import StorageError

    settings = settings_of_server(data_dir=data_dir)
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


def dashboard() -> None:
    """Serve Optuna's dashboard, read-only, on its socket."""
    settings = _begin("dashboard", None)
    from search.pandas_import import keep_pandas_out

    # Before the dashboard's own imports.
    keep_pandas_out()
    from service.processes.dashboard import run_dashboard

    run_dashboard(settings)


def _outlive_attempts() -> None:
    """Have the kernel look elsewhere first when memory runs out, if we may tell it so."""
    from search.linux import SERVICE_SCORE, lower_oom_score

    lower_oom_score(SERVICE_SCORE)


def _check_store(settings: Settings, *, as_json: bool) -> None:
    """Refuse to start over a store that refuses us."""
    from service.data_dir.artifact_store import check_artifacts
    from storage.errors import StoreRefused

    try:
        check_artifacts(settings)
    except StoreRefused as error:
        fail(str(error), 1, as_json=as_json)


def _begin(
    process: str,
    data_dir: Path | None,
    *,
    executor: ExecutorName | None = None,
) -> Settings:
    settings = settings_of_server(data_dir=data_dir, executor=executor)
    from service.observability.logs import configure_logging

    configure_logging(process, settings.log_level, settings.log_format)
    from service.data_dir.private_files import tighten

    tighten(settings)
    return settings
