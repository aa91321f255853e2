"""The C++ kernels as a shared library, loaded by ctypes: a wheel's own, or built on the machine.

A wheel brings libraries for several kinds of processors. Without one that fits, or with
`REFLECTORY_KERNELS=native`, the library is built once per machine for its own processor and kept in
a cache, named after everything that it follows from: sources, flags, compiler and CPU. Calls
through ctypes give up the GIL.
"""

import ctypes
import fcntl
import hashlib
import logging
import os
import platform
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from models.kernels import prebuilt
from models.kernels.compiling import (
    FLAGS,
    WHERE_KNOWN,
    WIDE_VECTORS,
    BuildError,
    build,
    compiler_here,
    digest_of_sources,
    version_of,
)
from models.kernels.structs import layout

_log = logging.getLogger(__name__)

_NATIVE = ("-march=native",)
_CHOICES = ("native", "torch")

_SOURCES_AT_START = digest_of_sources()
"""The callers of this process are made for these: a package may be upgraded while it runs."""


@cache
def library() -> ctypes.CDLL | None:
    """The library, built now if there is none; None where that is not possible.

    `REFLECTORY_KERNELS` in the environment says otherwise: `torch` does without it, `native` builds
    it for this machine's own processor even where a wheel's would do. One line of log says why
    there is none; torch's own operations then compute the same, more slowly.

    Raises:
        ValueError: `REFLECTORY_KERNELS` is neither.
    """
    wanted = os.environ.get("REFLECTORY_KERNELS") or None
    if wanted not in (None, *_CHOICES):
        raise ValueError(f"REFLECTORY_KERNELS is {wanted!r}; allowed are {', '.join(_CHOICES)}")
    if wanted == "torch":
        return None
    try:
        found = None if wanted == "native" else _brought_along()
        return load(cache_folder()) if found is None else found
    except (BuildError, OSError) as error:
        _log.warning("no CPU kernels, torch's operations take their place: %s", error)
        return None


def _brought_along() -> ctypes.CDLL | None:
    """The wheel's library for this processor, if there is one that this system loads."""
    path = prebuilt.library_for(platform.machine(), instructions(), _SOURCES_AT_START)
    if path is None:
        return None
    try:
        return _loaded(path)
    except OSError as error:
        _log.info("the wheel's kernels do not load here, others are built: %s", error)
        return None


def cache_folder() -> Path:
    """Where libraries are kept: `REFLECTORY_KERNEL_CACHE`, or a folder of the user's cache."""
    own = os.environ.get("REFLECTORY_KERNEL_CACHE")
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "reflectory" / "kernels"


def load(folder: Path) -> ctypes.CDLL:
    """Load the library from a folder, building it there first where it is missing.

    Processes that find it missing at the same time build it once: one builds, the others wait.

    Raises:
        BuildError: there is no compiler, or it failed.
        OSError: the folder cannot be written, or the library not loaded.
    """
    compiler = compiler_here()
    path = folder / f"kernels-{_digest(compiler)}.so"
    if not path.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(folder / "lock"):
            if not path.exists():
                _build(compiler, path)
    return _loaded(path)


def _build(compiler: str, path: Path) -> None:
    if digest_of_sources() != _SOURCES_AT_START:
        raise BuildError("the sources changed since this process began; start it again")
    build(compiler, path, _NATIVE, (*WHERE_KNOWN, *_wide_vectors()))


def _loaded(path: Path) -> ctypes.CDLL:
    found = ctypes.CDLL(str(path))
    _check_layout(found)
    return found


def _check_layout(found: ctypes.CDLL) -> None:
    """Compare the structs and enums of a library with those that it will be called with."""
    expected = layout()
    answers = (ctypes.c_int64 * len(expected))()
    ask = found["kernels_layout"]
    ask.restype = ctypes.c_int64
    ask.argtypes = [ctypes.POINTER(ctypes.c_int64), ctypes.c_int64]
    if ask(answers, len(expected)) != len(expected) or [*answers] != expected:
        raise BuildError(f"{found._name} has other structs than this program")


def _digest(compiler: str) -> str:
    """Names what a library follows from."""
    digest = hashlib.sha256(_SOURCES_AT_START)
    parts = (
        *(*FLAGS, *_NATIVE, *WHERE_KNOWN, *_wide_vectors()),
        *(compiler, version_of(compiler), platform.machine(), _cpu()),
    )
    digest.update("\0".join(parts).encode())
    return digest.hexdigest()[:16]


@cache
def _cpu() -> str:
    """The CPU's model and instruction sets, for which `-march=native` builds."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    wanted = ("model name", "flags", "Features", "CPU part")
    found = {line.split(":", 1)[0].strip(): line for line in lines if line.startswith(wanted)}
    return "\n".join(found[name] for name in sorted(found))


def instructions() -> frozenset[str]:
    """The instruction sets that the CPU says it has."""
    return frozenset(_cpu().split())


def _wide_vectors() -> tuple[str, ...]:
    return (WIDE_VECTORS,) if "avx512f" in instructions() else ()


@contextmanager
def _locked(path: Path) -> Generator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
