"""`server.json`: how the command line finds the server that works on a data directory."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from service.data_dir.whole_files import write_whole

_NAME = "server.json"


@dataclass(frozen=True)
class ServerFile:
    """Where the server of a data directory answers, and which process it is."""

    url: str
    pid: int
    folder: Path | None = None
    """Its folder of sockets elsewhere, which its own end takes away, or the next start does."""

    def write(self, data_dir: Path) -> None:
        """Put it in its place, whole, readable by its owner alone."""
        write_whole(data_dir / _NAME, json.dumps(asdict(self), default=str))

    @classmethod
    def read(cls, data_dir: Path) -> Self | None:
        """The server that was last started there; null when none was, or it ended in order."""
        try:
            document = json.loads((data_dir / _NAME).read_text())
            folder = document.get("folder")
            return cls(
                url=str(document["url"]),
                pid=int(document["pid"]),
                folder=None if folder is None else Path(str(folder)),
            )
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return None
        except (ValueError, KeyError, TypeError, AttributeError):
            return None

    @staticmethod
    def remove(data_dir: Path) -> None:
        """Take it away: no server works there any more."""
        (data_dir / _NAME).unlink(missing_ok=True)
