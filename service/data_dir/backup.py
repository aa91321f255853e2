"""What a backup of a server consists of, beyond the rows and bytes that `storage.backup` copies."""

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from service.data_dir.artifact_store import open_artifacts
from service.data_dir.secrets import signing_secret
from service.data_dir.whole_files import write_whole
from service.settings import Settings
from storage import backup

_ABOUT = "backup.json"
_SECRET = "secret"
_SERVED = ("serve.lock", "coordinator.lock", "server.json")
"""What a folder has that a server works on, or has worked on."""


class NoPlaceForBackup(Exception):
    """The folder is a server's own, or holds something else; says which."""


@dataclass(frozen=True)
class Backup:
    """What a backup is, as its `backup.json` says."""

    program: str
    """The version that made it; the same or a later one can start from it."""
    begun_at: str
    finished_at: str
    rows: str
    """The file of the rows."""
    artifacts: int
    copied: int
    """How many artifacts were not there from an earlier backup in the same folder."""
    secret: bool
    """Whether the signing secret is in it; not when the environment holds it."""


def back_up(settings: Settings, folder: Path) -> Backup:
    """Bring a folder of backups up to date with a server that may run meanwhile.

    Optuna's tables are not in it: the coordinator rebuilds them from our rows. Neither are
    downloaded data sets, logs and uploads that nobody has finished.

    Raises:
        NoPlaceForBackup: the folder is none to write a backup into.
        StorageError: rows or bytes cannot be read or written, see `storage.backup.back_up`.
    """
    begun = datetime.now(UTC)
    folder = folder.absolute()
    _check_place(folder, settings)
    # Its readers read the signing secret and the digests of keys.
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    made = backup.back_up(settings.database_url, open_artifacts(settings), folder)
    in_file = settings.secret is None
    if in_file:
        write_whole(folder / _SECRET, signing_secret(settings).decode())
    about = Backup(
        program=version("reflectory"),
        begun_at=begun.isoformat(),
        finished_at=datetime.now(UTC).isoformat(),
        rows=made.rows.name,
        artifacts=made.artifacts,
        copied=made.copied,
        secret=in_file,
    )
    write_whole(folder / _ABOUT, json.dumps(asdict(about), indent=2) + "\n")
    return about


def _check_place(folder: Path, settings: Settings) -> None:
    own = settings.data_dir.absolute()
    if folder == own or own in folder.parents:
        raise NoPlaceForBackup(f"{folder} is in the data directory {own} itself; choose another")
    if any((folder / name).exists() for name in _SERVED):
        raise NoPlaceForBackup(f"{folder} is the data directory of a server; choose another folder")
    if folder.exists() and any(folder.iterdir()) and not (folder / _ABOUT).exists():
        artifacts = folder / backup.ARTIFACTS
        # An earlier backup that was interrupted has bytes, and perhaps rows that are not whole.
        others = [entry for entry in folder.iterdir() if entry != artifacts]
        if not all(entry.name.startswith(backup.UNFINISHED) for entry in others):
            raise NoPlaceForBackup(f"{folder} holds something else; choose an empty folder")
