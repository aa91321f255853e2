"""`python -m tests.benchmarks.attempt_start`: what one attempt's process costs before it works.

Times attempts on a warm local executor, with the real worker and a local HTTP server, in turn with
a cold `python -c "import torch"` on the same machine.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from search.executors import AttemptTicket, LocalExecutor
from search.executors.slots import cpu_slots
from search.tasks import Digits
from search.wire import PrepareJob
from tests.search.attempt_api import TOKEN, AttemptApi

REPETITIONS = 50
COLD_EVERY = 5


def attempt(executor: LocalExecutor, api: AttemptApi, folder: Path, name: str) -> dict[str, float]:
    """Run one attempt; seconds from the call of `start` on, by what they lead to."""
    slot = executor.capacity()[0]
    ticket = AttemptTicket(
        url=api.url,
        attempt_id="a1",
        token=TOKEN,
        lease_seconds=60.0,
        device=slot.device,
        data=None,
        cache=folder / "cache",
        lane=folder / name,
        threads=1,
    )
    asked_at: list[float] = []

    def note(_method: str, _what: str) -> None:
        asked_at.append(time.monotonic())

    api.fault = note
    begun, begun_at = time.monotonic(), time.time()
    executor.start(ticket, slot)
    returned = time.monotonic()
    while not executor.poll(60.0):
        pass
    ended = time.monotonic()
    # The lane's folder is the first thing that the worker makes.
    worker_at = (folder / name).stat().st_mtime
    return {
        "start() returns": returned - begun,
        "the worker's first lines ran": worker_at - begun_at,
        "its first HTTP request arrived": asked_at[0] - begun,
        "a job without training is over (data loaded, reported, exited)": ended - begun,
    }


def cold() -> float:
    """Seconds of a fresh interpreter that imports torch and ends."""
    begun = time.monotonic()
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    return time.monotonic() - begun


def line(what: str, seconds: Sequence[float]) -> str:
    """One row of the table: median, spread and extremes in milliseconds."""
    low, middle, high = (1000 * value for value in statistics.quantiles(seconds, n=4))
    least, most = 1000 * min(seconds), 1000 * max(seconds)
    return f"{what:64}{middle:9.1f}{low:9.1f}{high:9.1f}{least:9.1f}{most:9.1f}"


def main() -> None:
    """Print the table."""
    write = sys.stdout.write
    rows: dict[str, list[float]] = {}
    with (
        tempfile.TemporaryDirectory() as name,
        AttemptApi(PrepareJob(task=Digits())) as api,
    ):
        folder = Path(name)
        executor = LocalExecutor(cpu_slots(1), logs=folder)
        begun = time.monotonic()
        attempt(executor, api, folder, "warm-up")
        first = time.monotonic() - begun
        for number in range(REPETITIONS):
            for what, seconds in attempt(executor, api, folder, f"lane-{number}").items():
                rows.setdefault(what, []).append(seconds)
            if number % COLD_EVERY == 0:
                rows.setdefault('cold: python -c "import torch"', []).append(cold())
        model = executor.capacity()[0].model
        executor.close()
    write(f"{datetime.now():%Y-%m-%d} · {model} · {REPETITIONS} attempts in a row, warm\n")
    write(f"first attempt, with the fork server's own start: {first:.2f} s\n\n")
    write(f"{'milliseconds from start() until':64}{'median':>9}{'25%':>9}{'75%':>9}")
    write(f"{'least':>9}{'most':>9}\n")
    for what, seconds in rows.items():
        write(line(what, seconds) + "\n")


if __name__ == "__main__":
    main()
