"""What comes before the first step, each in a process of its own."""

import os
import subprocess
import sys
import tempfile
import time

_ENTRY = "import time; t = time.monotonic(); {what}; print(time.monotonic() - t)"


def measured() -> dict[str, float]:
    """Seconds by what they are spent on."""
    load = "from models.kernels.library import library; t = time.monotonic(); assert library()"
    with tempfile.TemporaryDirectory() as cache:
        empty = {"REFLECTORY_KERNEL_CACHE": cache}
        return {
            "import torch": _seconds("import torch"),
            "import models.model, torch included": _seconds("import models.model"),
            "kernels, first time: built and loaded": _seconds(load, empty),
            "kernels, from then on: loaded": _seconds(load, empty),
        }


def throughput() -> dict[str, float]:
    """Training steps per second of wall time: one process, then two at once, one thread each."""
    alone = _steps_per_second("ours", workers=1, threads=1)
    return {
        "ours: two processes over one": _steps_per_second("ours", workers=2, threads=1) / alone,
        "ours: two threads over one": _steps_per_second("ours", workers=1, threads=2) / alone,
        "torch.nn: two threads over one": (
            _steps_per_second("torch.nn", workers=1, threads=2)
            / _steps_per_second("torch.nn", workers=1, threads=1)
        ),
    }


def _seconds(what: str, environment: dict[str, str] | None = None) -> float:
    run = subprocess.run(
        [sys.executable, "-c", _ENTRY.format(what=what)],
        env=os.environ | (environment or {}),
        capture_output=True,
        text=True,
        check=True,
    )
    return float(run.stdout)


def _steps_per_second(contestant: str, *, workers: int, threads: int) -> float:
    """Of all workers together, over the same seconds."""
    begin = time.time() + 12
    command = [sys.executable, "-m", "tests.benchmarks.cpu.pace", contestant]
    running = [
        subprocess.Popen([*command, str(threads), str(begin)], stdout=subprocess.PIPE, text=True)
        for _ in range(workers)
    ]
    return sum(float(process.communicate()[0]) for process in running)
