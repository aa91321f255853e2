"""The machine that figures were measured on, and what it can do at most."""

import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from models.kernels import library

_HERE = Path(__file__).parent
_SOURCES = Path(library.__file__).parent / "cpu"


@dataclass(frozen=True)
class Peak:
    """On one core."""

    gflops: float
    """multiply-adds in registers"""
    billion_tanh_per_second: float
    """of the kernels' own"""
    gigabytes_per_second: float
    """copies of 256 MB, bytes read plus written"""


def measured_peak(*, memory: bool = False) -> Peak | None:
    """None without a compiler; the bandwidth is 0 unless it is asked for."""
    program = _program()
    if program is None:
        return None
    command = [str(program), *(["memory"] if memory else [])]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    gflops, tanhs, gigabytes = map(float, run.stdout.split())
    return Peak(gflops, tanhs, gigabytes)


@cache
def _program() -> Path | None:
    """The calibrating program, built with the vectors and the register tile of the kernels."""
    compiler = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    if compiler is None:
        return None
    source = _HERE / "peak.cpp"
    flags = ["-std=c++17", "-O3", "-march=native", "-ffp-contract=fast", f"-I{_SOURCES}"]
    if "avx512f" in _cpuinfo():
        flags.append("-mprefer-vector-width=512")
    digest = hashlib.sha256(source.read_bytes() + (_SOURCES / "vector.h").read_bytes())
    folder = Path(tempfile.gettempdir()) / f"reflectory-peak-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    program = folder / digest.hexdigest()[:16]
    if not program.exists():
        draft = folder / f"draft-{os.getpid()}"
        subprocess.run([compiler, *flags, str(source), "-o", str(draft)], check=True)
        draft.replace(program)
    return program


def processor() -> str:
    """What the CPU calls itself."""
    model = re.search(r"^model name\s*: (.+)$", _cpuinfo(), re.MULTILINE)
    return model[1] if model else platform.processor()


def described() -> list[str]:
    """CPU, caches, versions and the peaks, one fact per line."""
    config = torch.__config__.show()
    mkl = re.search(r"Math Kernel Library Version (\S+)", config)
    onednn = re.search(r"MKL-DNN (v\S+)", config)
    vectors = [name for name in ("avx2", "avx512f") if f" {name} " in _cpuinfo()]
    peak = measured_peak(memory=True)
    compiler = subprocess.run(["c++", "--version"], capture_output=True, text=True, check=False)
    return [
        f"CPU: {processor()}, {os.cpu_count()} cores, {' '.join(vectors)}; {_caches()}",
        "one core: "
        + (
            f"{peak.gflops:.0f} GFLOP/s of multiply-adds, "
            f"{1 / peak.billion_tanh_per_second:.2f} ns per tanh, "
            f"{peak.gigabytes_per_second:.0f} GB/s copied (read + written)"
            if peak
            else "no compiler to measure it with"
        ),
        f"torch {torch.__version__}, MKL {mkl[1] if mkl else 'none'}, "
        f"oneDNN {onednn[1] if onednn else 'none'}, Python {platform.python_version()}",
        f"kernels built by {compiler.stdout.splitlines()[0] if compiler.stdout else 'nothing'}",
        f"load average when it began: {os.getloadavg()[0]:.2f}",
    ]


def _cpuinfo() -> str:
    try:
        return Path("/proc/cpuinfo").read_text()
    except OSError:
        return ""


def _caches() -> str:
    found: list[str] = []
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = (
            (folder / name).read_text().strip() for name in ("level", "type", "size")
        )
        if kind != "Instruction":
            found.append(f"L{level} {size}")
    return ", ".join(found)


if __name__ == "__main__":
    import sys

    sys.stdout.write("\n".join(described()) + "\n")
