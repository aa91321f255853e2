"""Measurements in processes of their own, whose environment is set before torch is imported."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

_SECONDS = 900.0
_ALONE = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_REAL = "--cpu"


def run_on_cpu(module: str, arguments: Sequence[str]) -> int:
    """Run a module that measures CPUs and give its exit status; not where a GPU answers.

    This process imports neither torch nor anything that a machine with torch alone lacks.
    """
    if shutil.which("nvidia-smi") and _REAL not in arguments:
        sys.stdout.write(f"A GPU answers here; what CPUs do is measured with {_REAL} only.\n")
        return 0
    passed = [argument for argument in arguments if argument != _REAL]
    command = [sys.executable, "-m", module, *passed]
    return subprocess.run(command, env=environment(huge_pages=True), check=False).returncode


def environment(*, huge_pages: bool) -> dict[str, str]:
    """One thread; memory in huge pages for everybody, or for nobody."""
    kept = {name: value for name, value in os.environ.items() if name != "REFLECTORY_BACKEND"}
    return kept | _ALONE | {"THP_MEM_ALLOC_ENABLE": "1" if huge_pages else "0"}


def told(module: str, *arguments: object, huge_pages: bool = True) -> str:
    """What `python -m tests.benchmarks.cpu.MODULE` prints.

    Raises:
        RuntimeError: it failed; the last line of what it said.
    """
    run = subprocess.run(
        [sys.executable, "-m", f"tests.benchmarks.cpu.{module}", *map(str, arguments)],
        env=environment(huge_pages=huge_pages),
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    if run.returncode:
        said = run.stderr.strip().splitlines() or [f"exit status {run.returncode}"]
        raise RuntimeError(said[-1])
    return run.stdout


def measured(module: str, *arguments: object, huge_pages: bool = True) -> dict[str, Any]:
    """The same as JSON; a failure becomes a result that says so."""
    try:
        return json.loads(told(module, *arguments, huge_pages=huge_pages))
    except RuntimeError as error:
        return {"case": str(arguments[0]), "mode": str(arguments[1]), "failed": str(error)}
