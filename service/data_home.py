"""Where a server keeps its files, and where the command line looks for it; nothing is imported."""

from pathlib import Path


def default_data_dir() -> Path:
    """The data directory where none is named."""
    return Path.home() / ".local" / "share" / "reflectory"
