"""The C compiler of this machine, and what it makes of a file."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from models.errors import ExportError, ToolMissing
from models.exports.c.export import CFile

COMPILERS = ("cc", "gcc", "clang")
STRICT = (
    "-std=c99",
    "-Wall",
    "-Wextra",
    "-Wpedantic",
    "-Wconversion",
    "-Wshadow",
    "-Werror",
)
FAST = ("-std=c99", "-O3", "-march=native", "-fno-trapping-math")
"""For speed on this machine; they change no bits."""


def compiler() -> str:
    """What `CC` names, or else the first of `COMPILERS` that is here.

    Raises:
        ToolMissing: there is none.
    """
    named = os.environ.get("CC")
    found = next(filter(shutil.which, [named] if named else COMPILERS), None)
    if found is None and named:
        raise ToolMissing(f"CC = {named!r} is not found here; allowed is the name of a C compiler")
    if found is None:
        raise ToolMissing(f"there is no C compiler here; looked for were {', '.join(COMPILERS)}")
    return found


def has_compiler() -> bool:
    """Whether `compiler` finds one."""
    try:
        compiler()
    except ToolMissing:
        return False
    return True


def described(flags: Sequence[str]) -> str:
    """The compiler's name and version, and what it is given.

    Raises:
        ToolMissing: there is no compiler.
        ExportError: it does not say its version.
    """
    named = compiler()
    answer = run([named, "--version"], Path.cwd()).decode(errors="replace")
    # `cc` calls itself so whichever it is.
    name = Path(shutil.which(named) or named).resolve().name
    return " ".join([f"{name}: {answer.partition(chr(10))[0].strip()}", *flags])


def write(file: CFile, folder: Path) -> None:
    """Put header and source into a folder."""
    (folder / f"{file.name}.h").write_text(file.header)
    (folder / f"{file.name}.c").write_text(file.source)


def run(command: Sequence[str], folder: Path, sent: bytes = b"") -> bytes:
    """What a command answers to its input.

    Raises:
        ToolMissing: there is no such program.
        ExportError: it fails; with what it says.
    """
    try:
        done = subprocess.run(command, cwd=folder, input=sent, capture_output=True, check=False)
    except FileNotFoundError as error:
        raise ToolMissing(f"{command[0]} is not found here") from error
    if done.returncode:
        said = done.stderr.decode(errors="replace")[-2000:]
        raise ExportError(f"{command[0]} failed with {done.returncode}: {said}")
    return done.stdout


def flash_bytes(
    file: CFile, *, by: str | None = None, flags: Sequence[str] = ("-Os",), size: str = "size"
) -> int:
    """Bytes of code and tables, as the compiler's `size` tells of the object.

    Raises:
        ToolMissing: there is no compiler, or no `size`.
        ExportError: the compiler fails.
    """
    with TemporaryDirectory() as name:
        folder = Path(name)
        write(file, folder)
        run([by or compiler(), *STRICT, *flags, "-c", f"{file.name}.c", "-o", "it.o"], folder)
        sizes = run([size, "it.o"], folder).decode().splitlines()[1].split()
    # Code and constants, and what is copied from flash when a device starts.
    return int(sizes[0]) + int(sizes[1])
