"""A small disk of its own for a folder, and what fills it."""

import os
import shutil
import subprocess
from contextlib import nullcontext, suppress
from pathlib import Path


def mount(folder: Path, mebibytes: int) -> bool:
    """Make `folder` a disk of that size; False where only root could."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(folder)]
    if os.geteuid() != 0:
        return False
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def unmount(folder: Path) -> None:
    """Take the disk away with all that is on it."""
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path, *, leave: int, name: str = "ballast") -> Path:
    """A file that takes what is free but for so many bytes."""
    ballast = folder / name
    wanted = bytes(max(0, shutil.disk_usage(folder).free - leave))
    # Where all is to be taken, a server that writes meanwhile has had the rest.
    full = suppress(OSError) if leave == 0 else nullcontext()
    with ballast.open("wb", buffering=0) as file, full:
        while wanted:
            wanted = wanted[file.write(wanted) :]
    return ballast
