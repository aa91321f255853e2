"""`--version`: of this program, and of the server that it would ask."""

import os
import platform
from importlib.metadata import version
from pathlib import Path

import typer

from service.data_dir.server_file import ServerFile
from service.data_home import default_data_dir

_SECONDS = 2.0
"""For the server to answer."""


def tell_versions() -> None:
    """Print the versions, and complain where server and client differ."""
    own = version("reflectory")
    typer.echo(f"reflectory {own}, Python {platform.python_version()}")
    server = _server()
    if server is None:
        return
    theirs = _version_of(server)
    typer.echo(f"server {server}: {theirs or 'does not answer, or is too old to tell'}")
    if theirs is not None and theirs != own:
        typer.echo(
            f"the versions differ; install the server's here: pip install 'reflectory=={theirs}'",
            err=True,
        )


def _server() -> str | None:
    """The server that commands would ask; None where none was named or started."""
    named = os.environ.get("REFLECTORY_SERVER")
    if named:
        return named
    folder = os.environ.get("REFLECTORY_DATA_DIR")
    found = ServerFile.read(Path(folder) if folder else default_data_dir())
    return None if found is None else found.url


def _version_of(server: str) -> str | None:
    # Only where there is a server: the program's own version is printed at once.
    from service.client import Client, ClientError

    try:
        with Client(server, timeout=_SECONDS, patience=0) as client:
            return client.health().version
    except (ClientError, ValueError):
        return None
