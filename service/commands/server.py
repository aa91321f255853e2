"""`devices`: what the server works on."""

from service.commands.connection import Asked, asking
from service.commands.shown.tables import devices_table


@asking
def devices(asked: Asked) -> None:
    """Show the devices that studies run on: their slots, what runs there, and who measures."""
    nothing = "no devices: no coordinator runs"
    asked.show_all(asked.client.devices(), devices_table, nothing=nothing)
