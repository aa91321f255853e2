"""The C++ kernels as a shared library: built once per machine, kept in a cache, loaded by ctypes.

The sources need neither torch's headers nor its ABI, so that a library outlives torch's releases.
It is named after everything that it follows from: sources, flags, compiler and CPU. Calls through
ctypes give up the GIL.
"""

import ctypes
import fcntl
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from models.kernels.structs import layout

_log = logging.getLogger(__name__)

_SOURCES = Path(__file__).parent / "cpu"
_FLAGS = (
    "-std=c++17",
    "-O3",
    "-march=native",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-exceptions",
    "-fno-rtti",
    "-pthread",
    "-fPIC",
)
_WHERE_KNOWN = (
    # A vector of zeros would become a call of memset, which costs as much as a small product.
    "-fno-tree-loop-distribute-patterns",
)
"""Flags that not all compilers have."""
_COMPILERS = ("c++", "g++", "clang++")
_LONGEST_BUILD_SECONDS = 120.0


def _digest_of_sources() -> bytes:
    digest = hashlib.sha256()
    for source in sorted(_SOURCES.iterdir()):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.digest()


_SOURCES_AT_START = _digest_of_sources()
"""The callers of this process are made for these: a package may be upgraded while it runs."""


class BuildError(Exception):
    """The kernels could not be built; says what the compiler said."""


@cache
def library() -> ctypes.CDLL | None:
    """The library, built now if it has never been; None where that is not possible.

    `REFLECTORY_KERNELS=torch` in the environment does without it. One line of log says why there
    is none; torch's own operations then compute the same, more slowly.
    """
    if os.environ.get("REFLECTORY_KERNELS") == "torch":
        return None
    try:
        return load(cache_folder())
    except (BuildError, OSError) as error:
        _log.warning("no CPU kernels, torch's operations take their place: %s", error)
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
    compiler = _compiler()
    path = folder / f"kernels-{_digest(compiler)}.so"
    if not path.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(folder / "lock"):
            if not path.exists():
                _build(compiler, path)
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


def _compiler() -> str:
    wanted = os.environ.get("CXX")
    for name in (wanted,) if wanted else _COMPILERS:
        if found := shutil.which(name):
            return found
    looked = wanted or ", ".join(_COMPILERS)
    raise BuildError(f"no C++ compiler found (looked for {looked})")


def _build(compiler: str, path: Path) -> None:
    """Build beside the final place and move there, so that nobody loads half a library.

    Sources are compiled side by side.
    """
    if _digest_of_sources() != _SOURCES_AT_START:
        raise BuildError("the sources changed since this process began; start it again")
    sources = sorted(_SOURCES.glob("*.cpp"))
    flags = (*_FLAGS, *_known_to(compiler, (*_WHERE_KNOWN, *_wide_vectors())))
    with tempfile.TemporaryDirectory(dir=path.parent, ignore_cleanup_errors=True) as folder:
        objects = [str(Path(folder) / f"{source.stem}.o") for source in sources]
        with ThreadPoolExecutor(len(sources)) as pool:
            jobs = [
                pool.submit(_run, [compiler, *flags, "-c", str(source), "-o", target])
                for source, target in zip(sources, objects, strict=True)
            ]
        for job in jobs:
            job.result()
        draft = Path(folder) / path.name
        _run([compiler, *flags, "-shared", *objects, "-o", str(draft)])
        draft.replace(path)


def _known_to(compiler: str, flags: tuple[str, ...]) -> list[str]:
    """Those of the flags that a compiler takes without a word."""
    empty = ("-x", "c++", "-std=c++17", "-Werror", "-fsyntax-only", os.devnull)
    return [flag for flag in flags if _runs([compiler, flag, *empty])]


def _runs(command: list[str]) -> bool:
    try:
        _run(command)
    except BuildError:
        return False
    return True


def _run(command: list[str]) -> str:
    """What the command prints."""
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=_LONGEST_BUILD_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise BuildError(f"{command[0]} took more than {_LONGEST_BUILD_SECONDS:g} s") from error
    if result.returncode:
        last = result.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise BuildError(f"{command[0]} failed with {result.returncode}: {last[0]}")
    return result.stdout


def _digest(compiler: str) -> str:
    """Names what a library follows from."""
    digest = hashlib.sha256(_SOURCES_AT_START)
    version = _run([compiler, "--version"])
    parts = (
        *_FLAGS,
        *_WHERE_KNOWN,
        *_wide_vectors(),
        compiler,
        version,
        platform.machine(),
        _cpu(),
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


def _wide_vectors() -> tuple[str, ...]:
    # Compilers prefer 256 bits even where there are 512, which halves what a register tile holds.
    return ("-mprefer-vector-width=512",) if "avx512f" in _cpu() else ()


@contextmanager
def _locked(path: Path) -> Generator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
