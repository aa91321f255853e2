"""`python -m tests.benchmarks.attempt_start`: what one attempt's process costs before it works.

Times attempts on a warm executor of each kind, with the real worker and a local HTTP server: in the
coordinator's own process, and forked on this machine. Those are timed in turn with a cold
`python -c "import torch"`.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from search.agents.executors import AttemptTicket, Executor, LocalExecutor
from search.agents.executors.inline import InlineExecutor
from search.agents.executors.slots import cpu_slots
from search.tasks import Digits
from search.training.jobs import PrepareJob
from tests.search.attempt_api import TOKEN, AttemptApi

REPETITIONS = 50
COLD_EVERY = 5


def attempt(executor: Executor, api: AttemptApi, folder: Path, name: str) -> dict[str, float]:
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
        lock_folder=folder / name,
        threads=1,
    )
    asked_at: list[float] = []

    def note(_method: str, _what: str) -> None:
        asked_at.append(time.monotonic())

    api.fault = note
    begun, begun_at = time.monotonic(), time.time()
    assert executor.reserve("a1", slot)
    executor.start(ticket, slot)
    returned = time.monotonic()
    while not executor.poll(60.0):
        pass
    ended = time.monotonic()
    # The lock's folder is the first thing that the worker makes.
    lines = {"the worker's first lines ran": (folder / name).stat().st_mtime - begun_at}
    return {
        "reserve() and start() return": returned - begun,
        **lines,
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


def attempts(executor: Executor, api: AttemptApi, folder: Path, *, cold_too: bool) -> None:
    """Print one executor's table."""
    write = sys.stdout.write
    rows: dict[str, list[float]] = {}
    begun = time.monotonic()
    attempt(executor, api, folder, "warm-up")
    first = time.monotonic() - begun
    for number in range(REPETITIONS):
        for what, seconds in attempt(executor, api, folder, f"lock-{number}").items():
            rows.setdefault(what, []).append(seconds)
        if cold_too and number % COLD_EVERY == 0:
            rows.setdefault('cold: python -c "import torch"', []).append(cold())
    write(f"\n{type(executor).__name__}; its first attempt took {first:.2f} s in all\n")
    write(f"{'milliseconds until':64}{'median':>9}{'25%':>9}{'75%':>9}{'least':>9}{'most':>9}\n")
    for what, seconds in rows.items():
        write(line(what, seconds) + "\n")


def main() -> None:
    """Print a table for each executor."""
    model = cpu_slots(1)[0].model
    sys.stdout.write(f"{datetime.now():%Y-%m-%d} · {model} · {REPETITIONS} attempts, warm\n")
    with (
        tempfile.TemporaryDirectory() as name,
        AttemptApi(PrepareJob(task=Digits())) as api,
    ):
        inline = InlineExecutor(logs=Path(name, "inline"))
        attempts(inline, api, Path(name, "inline"), cold_too=False)
        inline.close()
        local = LocalExecutor(cpu_slots(1), logs=Path(name, "local"))
        attempts(local, api, Path(name, "local"), cold_too=True)
        local.close()


if __name__ == "__main__":
    main()
