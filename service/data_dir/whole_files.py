"""Files that are there whole or not at all."""

import os
import tempfile
from pathlib import Path


def write_whole(path: Path, content: str | bytes, *, private: bool = True) -> None:
    """Write a file, a text in UTF-8, in one step, so that no reader ever sees half of it.

    Its mode is 0600 (`private`), or else the one that the user's umask leaves.
    """
    # mkstemp makes the file with mode 0600, and renaming keeps that.
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        if not private:
            Path(name).chmod(usual_mode())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def usual_mode() -> int:
    """The mode of files that a program simply opens for writing, by the user's umask."""
    # It can only be read by setting it: to one under which nothing is made too open meanwhile.
    mask = os.umask(0o077)
    os.umask(mask)
    return 0o666 & ~mask
