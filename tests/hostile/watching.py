"""What is measured while a server is attacked: its memory, its files, and how soon it answers."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

_EVERY_SECONDS = 0.05

_PROBER = """
import http.client, json, sys, threading, time
host, port = sys.argv[1], int(sys.argv[2])
over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
taken = []
while not over.is_set():
    began = time.perf_counter()
    try:
        probe = http.client.HTTPConnection(host, port, timeout=120)
        probe.request("GET", "/healthz")
        status = probe.getresponse().status
        probe.close()
    except OSError:
        status = 0
    taken.append((time.perf_counter() - began, status))
    time.sleep(0.02)
print(json.dumps(taken))
"""


@dataclass
class Seen:
    """What was measured; seconds and bytes."""

    healthz: list[tuple[float, int]]
    """Seconds and status of each probe, every one on a connection of its own."""
    rss_before: int
    rss_most: int
    unlinked_most: int
    """Bytes in open files that have no name, so that no listing shows them."""

    @property
    def grown(self) -> int:
        """How much memory was taken beyond what was taken before."""
        return self.rss_most - self.rss_before

    @property
    def slowest(self) -> float:
        """The longest wait for an answer."""
        return max(seconds for seconds, _ in self.healthz)

    @property
    def median(self) -> float:
        """The wait in the middle."""
        return sorted(self.healthz)[len(self.healthz) // 2][0]


@contextmanager
def watched(process: psutil.Process, host: str, port: int) -> Generator[Seen]:
    """Measure meanwhile; the numbers are whole afterwards."""
    before = process.memory_info().rss
    seen = Seen([], before, before, 0)
    over = threading.Event()

    def look() -> None:
        while not over.wait(_EVERY_SECONDS):
            with suppress(psutil.NoSuchProcess):
                seen.rss_most = max(seen.rss_most, process.memory_info().rss)
                seen.unlinked_most = max(seen.unlinked_most, unlinked_bytes(process.pid))

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    command = [sys.executable, "-c", _PROBER, host, str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as prober:
        try:
            yield seen
        finally:
            told, _ = prober.communicate()
            over.set()
            looking.join()
    seen.healthz = [(float(seconds), int(status)) for seconds, status in json.loads(told)]


def unlinked_bytes(pid: int) -> int:
    """What a process holds in files on disk that are deleted already."""
    found = 0
    with suppress(FileNotFoundError):
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                target = os.readlink(file)
                if target.startswith("/") and target.endswith(" (deleted)"):
                    found += file.stat().st_size
    return found


_CHANGES = ("reflectory.db", "optuna.db", "coordinator.alive", "logs/", "lanes/", "api.log")
"""What a server that nobody speaks to writes too."""


def files_below(*folders: Path) -> dict[str, int]:
    """Every file that the server should have no reason to touch, and its size."""
    found: dict[str, int] = {}
    for folder in folders:
        for file in sorted(folder.rglob("*")):
            name = str(file.relative_to(folder))
            if file.is_file() and not name.startswith(_CHANGES):
                found[str(file)] = file.stat().st_size
    return found
