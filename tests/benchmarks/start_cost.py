"""What `serve` costs before it does anything: `python -m tests.benchmarks.start_cost`.

A server without studies is started several times: the processor's seconds of all its processes
until `/readyz` answers, and until they have gone quiet; then, in mebibytes, the memory of each
process (PSS: what it shares counts in parts), and the processor's seconds per minute while nobody
asks anything; then a visit to Optuna's dashboard, with `--paused N` an idle minute of so many
paused studies, and with `--running N` what the API, the coordinator and the agent take in a minute
in which so many long studies run on all slots. With `--before FOLDER` each round also starts the
server of another checkout, the two in turn, with the same interpreter and packages.
"""

import argparse
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

import httpx2
import psutil

from service.data_dir.server_file import ServerFile

_HERE = Path(__file__).parents[2]
_PATIENCE_SECONDS = 600.0
_PAUSE_SECONDS = 0.05
_QUIET_SECONDS = 3.0
_QUIET_SHARE = 0.1
"""Of one core: what all processes together take at most once they have gone quiet."""
_ROLES = ("fork_server", "coordinator", "dashboard", "readiness", "api", "agent")
_ENGINE = ("api", "coordinator", "agent")
"""What trains nothing itself, while studies run."""
_MEBIBYTE = 1 << 20
_SETTLE_SECONDS = 30.0
"""After the last study was paused, until what follows from it is done."""
_STUDY = {
    "task": {"kind": "digits"},
    "architectures": ["rnn"],
    "parametrizations": ["dense"],
    "budget": {"trials": 2, "epochs": 2},
}

_LONG_STUDY = {
    "task": {"kind": "copy_tail"},
    "architectures": ["rnn"],
    "parametrizations": ["dense"],
    "budget": {"trials": 1, "epochs": 100_000},
}

Figures = Mapping[str, float]


class _Tree:
    """A server and all processes below it."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._top = psutil.Process(process.pid)

    def processor_seconds(self) -> float:
        """Of all that run and all that they have seen end."""
        return sum(self.by_role(lambda process: sum(process.cpu_times()[:4])).values())

    def memory(self) -> dict[str, float]:
        """PSS by role, in MiB."""
        return self.by_role(lambda process: _pss(process.pid) / _MEBIBYTE)

    def by_role(self, measure: Callable[[psutil.Process], float]) -> dict[str, float]:
        """Sums over the processes of each role."""
        found: dict[str, float] = defaultdict(float)
        for process in self._processes():
            with suppress(psutil.NoSuchProcess, OSError):
                words = " ".join(process.cmdline()[:5])
                role = next((role for role in _ROLES if role in words), "supervisor")
                found[role] += measure(process)
        return found

    def wait_until_quiet(self) -> None:
        """Until next to nothing happens for a while."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < deadline:
            before = self.processor_seconds()
            time.sleep(_QUIET_SECONDS)
            if self.processor_seconds() - before < _QUIET_SHARE * _QUIET_SECONDS:
                return
        raise TimeoutError("the server does not go quiet")

    def _processes(self) -> Sequence[psutil.Process]:
        return [self._top, *self._top.children(recursive=True)]


def _pss(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name == "Pss":
            return int(rest.split()[0]) * 1024
    return 0


@contextmanager
def serving(checkout: Path, data_dir: Path, workers: int) -> Iterator[_Tree]:
    """The server of a checkout, with the packages that are installed here."""
    command = [sys.executable, "-P", "-m", "service.cli", "serve", "--port", "0"]
    command += ["--data-dir", str(data_dir), "--workers", str(workers)]
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    with data_dir.with_suffix(".log").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env=environment | {"PYTHONPATH": str(checkout)}
        )
    try:
        yield _Tree(process)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def answering(data_dir: Path) -> httpx2.Client:
    """A client for it, once it answers."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        described = ServerFile.read(data_dir)
        with suppress(httpx2.TransportError):
            if described is not None:
                client = httpx2.Client(base_url=described.url, timeout=120, trust_env=False)
                if client.get("/readyz").status_code == 200:
                    return client
        time.sleep(_PAUSE_SECONDS)
    raise TimeoutError(f"no server answers; its log is {data_dir.with_suffix('.log')}")


def _idle_minute(tree: _Tree, idle_seconds: float) -> float:
    """The processor's seconds per minute while nobody asks anything."""
    before, since = tree.processor_seconds(), time.perf_counter()
    time.sleep(idle_seconds)
    return 60 * (tree.processor_seconds() - before) / (time.perf_counter() - since)


def _pause_studies(client: httpx2.Client, count: int) -> None:
    for number in range(count):
        study = client.post("/v1/studies", json={**_STUDY, "name": f"paused {number}"}).json()
        client.post(f"/v1/studies/{study['id']}/pause").raise_for_status()
    time.sleep(_SETTLE_SECONDS)


def _running_minute(
    tree: _Tree, client: httpx2.Client, count: int, idle_seconds: float
) -> Iterator[tuple[str, float]]:
    """The processor's seconds per minute of each part of the engine while long studies run."""
    for number in range(count):
        answer = client.post("/v1/studies", json={**_LONG_STUDY, "name": f"running {number}"})
        answer.raise_for_status()
    time.sleep(_SETTLE_SECONDS)

    def seconds() -> dict[str, float]:
        return tree.by_role(lambda process: sum(process.cpu_times()[:2]))

    before, since = seconds(), time.perf_counter()
    time.sleep(idle_seconds)
    after, minutes = seconds(), (time.perf_counter() - since) / 60
    for role in _ENGINE:
        yield f"{role}, {count} running studies, s", (after[role] - before[role]) / minutes


def _measured(
    checkout: Path, folder: Path, *, workers: int, idle_seconds: float, paused: int, running: int
) -> Figures:
    """One start, from the first process to the last figure."""
    begun = time.perf_counter()
    with serving(checkout, folder, workers) as tree:
        client = answering(folder)
        found = {
            "processor until ready, s": tree.processor_seconds(),
            "wall until ready, s": time.perf_counter() - begun,
        }
        tree.wait_until_quiet()
        found["processor until quiet, s"] = tree.processor_seconds()
        memory = tree.memory()
        found["PSS, all, MiB"] = sum(memory.values())
        found |= {f"PSS, {role}, MiB": memory[role] for role in sorted(memory)}
        found["processor per idle minute, s"] = _idle_minute(tree, idle_seconds)
        since = time.perf_counter()
        assert client.get("/dashboard/").status_code == 200
        found["first visit to the dashboard, wall, s"] = time.perf_counter() - since
        tree.wait_until_quiet()
        found["PSS, all, after that visit, MiB"] = sum(tree.memory().values())
        if paused:
            _pause_studies(client, paused)
            found[f"processor per idle minute, {paused} paused studies, s"] = _idle_minute(
                tree, idle_seconds
            )
        if running:
            found |= dict(_running_minute(tree, client, running, idle_seconds))
    return found


def _shown(values: Sequence[float]) -> str:
    if not values:
        return "-"
    low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else (values[0],) * 3
    return f"{middle:.2f} [{low:.2f}, {high:.2f}]"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, help="folder of another checkout")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--idle-seconds", type=float, default=30.0)
    parser.add_argument("--paused", type=int, default=0, metavar="N", help="studies")
    parser.add_argument("--running", type=int, default=0, metavar="N", help="studies")
    given = parser.parse_args()
    checkouts = {"before": given.before.resolve()} if given.before else {}
    checkouts["this checkout"] = _HERE
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for _ in range(given.rounds):
        for name, checkout in checkouts.items():
            with tempfile.TemporaryDirectory(prefix="start-cost-") as folder:
                measured = _measured(
                    checkout,
                    Path(folder, "data"),
                    workers=given.workers,
                    idle_seconds=given.idle_seconds,
                    paused=given.paused,
                    running=given.running,
                )
            for what, value in measured.items():
                found[what][name].append(value)
    lines = [
        f"{datetime.now():%Y-%m-%d} · {platform.machine()}, {os.cpu_count()} cores · "
        f"{given.rounds} starts each · median [middle half]",
        "",
        f"| | {' | '.join(checkouts)} |",
        f"|---|{'---|' * len(checkouts)}",
    ]
    for what, by_checkout in found.items():
        cells = (_shown(by_checkout[name]) for name in checkouts)
        lines.append(f"| {what} | {' | '.join(cells)} |")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
