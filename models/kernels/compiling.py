"""The kernels' sources made into a library, by whatever C++ compiler there is.

The sources need neither torch's headers nor its ABI, so that a library outlives torch's releases.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SOURCES = Path(__file__).parent / "cpu"
FLAGS = (
    "-std=c++17",
    "-O3",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-exceptions",
    "-fno-rtti",
    "-pthread",
    "-fPIC",
)
WHERE_KNOWN = (
    # A vector of zeros would become a call of memset, which costs as much as a small product.
    "-fno-tree-loop-distribute-patterns",
)
"""Flags that not all compilers have."""
WIDE_VECTORS = "-mprefer-vector-width=512"
"""Compilers prefer 256 bits even where there are 512, which halves what a register tile holds."""
_COMPILERS = ("c++", "g++", "clang++")
_LONGEST_BUILD_SECONDS = 600.0


class BuildError(Exception):
    """The kernels could not be built; says what the compiler said."""


def digest_of_sources() -> bytes:
    """What tells versions of the sources apart."""
    digest = hashlib.sha256()
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.digest()


def compiler_here() -> str:
    """The compiler for this machine: `CXX`, or the first that is found.

    Raises:
        BuildError: there is none.
    """
    wanted = os.environ.get("CXX")
    for name in (wanted,) if wanted else _COMPILERS:
        if found := shutil.which(name):
            return found
    looked = wanted or ", ".join(_COMPILERS)
    raise BuildError(f"no C++ compiler found (looked for {looked})")


def version_of(compiler: str) -> str:
    """What a compiler says of itself.

    Raises:
        BuildError: it says nothing, or takes too long.
    """
    return _run([compiler, "--version"])


def build(compiler: str, path: Path, flags: Sequence[str], where_known: Sequence[str]) -> None:
    """Build beside the final place and move there, so that nobody loads half a library.

    Sources are compiled side by side.

    Args:
        compiler: the command.
        path: the library.
        flags: beside `FLAGS`.
        where_known: further flags, if the compiler has them.

    Raises:
        BuildError: the compiler failed.
    """
    sources = sorted(SOURCES.glob("*.cpp"))
    flags = (*FLAGS, *flags, *known_to(compiler, where_known))
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


def known_to(compiler: str, flags: Sequence[str]) -> list[str]:
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
