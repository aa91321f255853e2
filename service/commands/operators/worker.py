"""`worker`: this machine's slots for a server elsewhere."""

import os
import signal
import threading
from typing import Annotated

import typer

from service.commands.connection import (
    REFUSED,
    DataDirOption,
    JsonOption,
    SlotMemoryOption,
    fail,
    find_server,
    print_json,
    settings_of_server,
)


def worker(
    server: Annotated[
        str,
        typer.Option(
            envvar="REFLECTORY_SERVER", metavar="URL", help="The server whose studies run here."
        ),
    ],
    workers: Annotated[
        int | None,
        typer.Option(min=0, help="Attempts side by side; by default one per core; 0: GPUs alone."),
    ] = None,
    slots_per_gpu: Annotated[
        int | None, typer.Option(min=1, max=64, help="Attempts that share a GPU; by default one.")
    ] = None,
    slot_memory: SlotMemoryOption = None,
    name: Annotated[
        str | None, typer.Option(help="What the machine is called; by default its host's name.")
    ] = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run attempts of a server's studies on this machine until Ctrl-C; nothing listens here.

    Where the server asks for keys, REFLECTORY_KEY holds one with the scope `work`.
    """
    from service.client import Unreachable
    from service.client.transport.described import checked_url

    try:
        checked_url(server)
    except Unreachable as error:
        raise typer.BadParameter(str(error)) from error
    settings = settings_of_server(
        data_dir=data_dir, workers=workers, slots_per_gpu=slots_per_gpu, slot_memory=slot_memory
    )
    from service.observability.logs import configure_logging

    configure_logging("worker", settings.log_level, settings.log_format)
    from search.linux import SERVICE_SCORE, lower_oom_score

    lower_oom_score(SERVICE_SCORE)
    stop = threading.Event()
    for sign in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sign, lambda _sign, _frame: stop.set())
    from service.processes.working import AlreadyWorking, MachineRefused, NoSlots, work

    place = find_server(server, data_dir).url
    begun = False

    def announce(as_name: str, slots: int) -> None:
        nonlocal begun
        if begun:
            return
        begun = True
        if as_json:
            print_json({"server": place, "machine": as_name, "slots": slots})
        else:
            typer.echo(f"This machine works for {place} as {as_name}, with {slots} slots")

    try:
        work(
            settings,
            server=place,
            key=os.environ.get("REFLECTORY_KEY", "").strip() or None,
            name=name,
            stop=stop,
            announce=announce,
        )
    except (AlreadyWorking, MachineRefused) as error:
        fail(str(error), REFUSED, as_json=as_json)
    except NoSlots as error:
        raise typer.BadParameter(str(error)) from error
