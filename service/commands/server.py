"""`devices`: what the server works on."""

import typer
from rich.console import Console

from service.commands.connection import (
    DataDirOption,
    JsonOption,
    ServerOption,
    connected,
    print_json,
)
from service.commands.tables import devices_table


def devices(
    server: ServerOption = None, data_dir: DataDirOption = None, as_json: JsonOption = False
) -> None:
    """Show the devices that studies run on: their slots, what runs there, and who measures."""
    with connected(server, data_dir, as_json=as_json) as client:
        found = client.devices()
    if as_json:
        print_json([device.model_dump(mode="json") for device in found])
    elif found:
        Console().print(devices_table(found))
    else:
        typer.echo("no devices: no coordinator runs")
