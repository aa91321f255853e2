"""`python -m tests.benchmarks.thousands.coordinator_memory`: what a running study's trials take.

A study on SQLite is given trials of made-up results and left running. A real coordinator claims it
and makes Optuna's study and its own memory of the rows; its memory is read before and after.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from search.tasks import DataSources
from storage.engine import Database
from tests.benchmarks.thousands.filling import Filler, submitted

_SETTLED_SECONDS = 30.0


def _memory(folder: Path, url: str) -> float:
    """MiB (PSS) of a coordinator of this database, once it has claimed what there is."""
    environment = {name: value for name, value in os.environ.items() if "REFLECTORY_" not in name}
    environment |= {
        "REFLECTORY_DATABASE_URL": url,
        "REFLECTORY_OPTUNA_URL": f"sqlite:///{folder}/optuna.db",
        "REFLECTORY_DATA_DIR": str(folder),
        "REFLECTORY_WORKERS": "0",
        "REFLECTORY_SECRET": "a secret of thirty-two letters, or more",
    }
    command = [sys.executable, "-m", "service.cli", "coordinator"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        most, since = 0.0, time.monotonic()
        while time.monotonic() - since < _SETTLED_SECONDS:
            time.sleep(1)
            now = psutil.Process(process.pid).memory_full_info().pss / 2**20
            if now > 1.01 * most:
                most, since = now, time.monotonic()
        return most
    finally:
        process.terminate()
        process.wait()


def main() -> None:
    """Fill a study and say what its coordinator takes."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.thousands.coordinator_memory")
    parser.add_argument("--trials", type=int, default=10_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="reflectory-memory-") as name:
        folder = Path(name)
        url = f"sqlite:///{folder}/reflectory.db"
        database = Database(url)
        database.migrate()
        empty = _memory(folder, url)
        sources = DataSources(cache=folder / "cache", folder=None)
        study = submitted(database, sources, given.trials + 1000)
        Filler(database, study).fill(given.trials)
        database.dispose()
        full = _memory(folder, url)
    sys.stdout.write(
        f"coordinator, MiB (PSS): {empty:.0f} without a study, {full:.0f} while one of "
        f"{given.trials} trials runs\n"
    )


if __name__ == "__main__":
    main()
