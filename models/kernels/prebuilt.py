"""Libraries that a wheel brings along: one for each kind of processor, chosen when it is loaded.

`python -m models.kernels.prebuilt FOLDER` builds those for which there is a compiler; with `--all`
a missing compiler is an error.
"""

import argparse
import platform
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from models.kernels.compiling import (
    WHERE_KNOWN,
    WIDE_VECTORS,
    BuildError,
    build,
    compiler_here,
    digest_of_sources,
)

FOLDER = Path(__file__).parent / "prebuilt"
"""Where a wheel has them; a checkout has none."""


@dataclass(frozen=True)
class Target:
    """A kind of processor."""

    name: str
    machine: str
    """As `platform.machine` calls it."""
    flags: tuple[str, ...]
    needs: frozenset[str] = frozenset()
    """Instruction sets beyond the machine's least, as /proc/cpuinfo calls them."""

    def file_name(self, sources: bytes) -> str:
        """Of its library, which fits sources of this digest alone."""
        return f"kernels-{self.name}-{sources.hex()[:16]}.so"

    def compiler(self) -> str:
        """One that builds for it: this machine's own, or Debian's for the other.

        Raises:
            BuildError: there is none.
        """
        if platform.machine() == self.machine:
            return compiler_here()
        name = f"{self.machine}-linux-gnu-g++"
        if found := shutil.which(name):
            return found
        raise BuildError(f"no compiler for {self.name} found (looked for {name})")


_OF_ITS_OWN = ("-static-libstdc++", "-static-libgcc")
"""A machine may have an older C++ library than the one that the wheel was built on."""

_AVX2 = frozenset({"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"})
_AVX512 = frozenset({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"})

TARGETS = (
    Target("x86-64-v4", "x86_64", ("-march=x86-64-v4", WIDE_VECTORS), _AVX2 | _AVX512),
    Target("x86-64-v3", "x86_64", ("-march=x86-64-v3",), _AVX2),
    Target("aarch64", "aarch64", ("-march=armv8-a",)),
)
"""The best of each machine first."""


def library_for(
    machine: str, instructions: frozenset[str], sources: bytes, folder: Path = FOLDER
) -> Path | None:
    """The best library of these sources that a processor runs; None where there is none for it."""
    for target in TARGETS:
        path = folder / target.file_name(sources)
        if target.machine == machine and target.needs <= instructions and path.exists():
            return path
    return None


def build_all(folder: Path, *, every: bool) -> list[Path]:
    """Build the libraries of all targets for which there is a compiler.

    Raises:
        BuildError: a compiler failed, or with `every` one is missing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sources = digest_of_sources()
    built: list[Path] = []
    for target in TARGETS:
        try:
            compiler = target.compiler()
        except BuildError:
            if every:
                raise
            continue
        path = folder / target.file_name(sources)
        build(compiler, path, target.flags, (*WHERE_KNOWN, *_OF_ITS_OWN))
        built.append(path)
    return built


def main() -> None:
    """Build into the folder that is named, and say what."""
    parser = argparse.ArgumentParser(description="Build the libraries of a wheel.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--all", action="store_true", help="fail where a compiler is missing")
    given = parser.parse_args()
    try:
        built = build_all(given.folder, every=given.all)
    except BuildError as error:
        raise SystemExit(str(error)) from error
    for path in built:
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
