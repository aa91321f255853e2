"""The secret that the server signs with: that of the settings, or a file that is made once."""

import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path

from service.settings import Settings

_FILE = "secret"


def signing_secret(settings: Settings) -> bytes:
    """What webhooks are signed with, the same for all processes of a data directory.

    Each purpose derives a key of its own from it.
    """
    if settings.secret is not None:
        return settings.secret.get_secret_value().encode()
    path = settings.data_dir / _FILE
    if not path.exists():
        _make(path)
    return path.read_bytes()


def _make(path: Path) -> None:
    """Make the file whole, and once: of processes that do so together, one is the first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # mkstemp makes the file with mode 0600, and a link has the mode of its file.
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(32))
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(name, path)
    finally:
        Path(name).unlink()
