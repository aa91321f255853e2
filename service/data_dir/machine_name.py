"""What a coordinator is called: the machine that it works on, and its data directory there."""

import socket
from pathlib import Path


def coordinator_name(data_dir: Path) -> str:
    """The name of this machine's coordinator over a data directory, the same after a restart."""
    return f"{socket.gethostname()}:{data_dir.absolute()}"


def machine_of(owner: str) -> str:
    """The machine of a coordinator; where it keeps its files is for nobody else to know."""
    return owner.partition(":")[0]
