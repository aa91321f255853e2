"""The command line in the test's own process, against a server that listens."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from typer.testing import CliRunner, Result

from service.cli import application
from service.data_dir.server_file import ServerFile
from tests.service.listening import listening
from tests.service.site import Site


@contextmanager
def served(site: Site) -> Iterator[str]:
    """A site whose data directory names its server; gives the server's URL."""
    with listening(site) as (host, port):
        url = f"http://{host}:{port}"
        ServerFile(url=url, pid=os.getpid()).write(site.settings.data_dir)
        yield url


def called(site: Site, *words: object, columns: int = 80) -> Result:
    """Run a command against the site's server; nobody sits before it."""
    environment = {
        "REFLECTORY_DATA_DIR": str(site.settings.data_dir),
        "REFLECTORY_SERVER": None,
        "COLUMNS": str(columns),
    }
    return CliRunner().invoke(application, [*map(str, words)], env=environment)


def printed(site: Site, *words: object, columns: int = 80) -> str:
    """What a command that succeeds prints."""
    result = called(site, *words, columns=columns)
    assert result.exit_code == 0, result.output
    return result.stdout
