"""`python -m tests.benchmarks.artifact_stores`: what a large artifact costs in each kind of store.

Writes, reads and reads a piece of one artifact of 200 MB (`--megabytes`), each in a process of its
own, so that its peak of memory is its own: in a folder, and in a bucket of a local S3 server, which
holds everything in memory and is written in Python: what it takes is a lower bound of the speed.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from storage.blobs.places import place_of
from storage.blobs.stores import open_store
from tests.s3_server import CREDENTIALS, S3Server, url_of

_CHUNK = 1 << 20
_PIECE = 1 << 20
_PROGRAM = "tests.benchmarks.artifact_stores"


def measure(what: str, url: str, content: Path, digest: str) -> tuple[float, float]:
    """Seconds and megabytes of memory that were added, of one piece of work in this process."""
    store = open_store(place_of(url))
    store.check_access()
    # Forgets the peak so far.
    Path("/proc/self/clear_refs").write_text("5")
    before = _peak_kilobytes()
    begun = time.monotonic()
    if what == "write":
        with content.open("rb") as stream:
            store.write(digest, stream)
    else:
        with store.open_reader(digest) as reader:
            if what == "read":
                while reader.read(_CHUNK):
                    pass
            else:
                reader.seek(content.stat().st_size // 2)
                reader.read(_PIECE)
    seconds = time.monotonic() - begun
    return seconds, (_peak_kilobytes() - before) / 1024


def _peak_kilobytes() -> int:
    (line,) = [row for row in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in row]
    return int(line.split()[1])


def main() -> None:
    """Print seconds, speed and memory, by store and work."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one is not None:
        what, url, content, digest = given.one
        sys.stdout.write("{} {}\n".format(*measure(what, url, Path(content), digest)))
        return
    server = S3Server()
    try:
        with tempfile.TemporaryDirectory() as folder:
            content = Path(folder) / "content"
            with content.open("wb") as file:
                for _ in range(given.megabytes):
                    file.write(os.urandom(1_000_000))
            urls = {"folder": (Path(folder) / "store").as_uri(), "bucket": url_of(server.place())}
            sys.stdout.write(
                f"{given.megabytes} MB               seconds   MB/s   memory added (MB)\n"
            )
            for name, url in urls.items():
                for what in ("write", "read", "1 MiB of it"):
                    _print(name, what, url, content, given.megabytes)
    finally:
        server.stop()


def _print(name: str, what: str, url: str, content: Path, megabytes: int) -> None:
    digest = subprocess.run(
        ["sha256sum", str(content)], check=True, capture_output=True, text=True
    ).stdout.split()[0]
    run = subprocess.run(
        [sys.executable, "-m", _PROGRAM, "--one", what, url, str(content), digest],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **CREDENTIALS},
    )
    seconds, added = map(float, run.stdout.split())
    speed = f"{megabytes / seconds:9.0f}" if what in ("write", "read") else " " * 9
    sys.stdout.write(f"{name:7} {what:12} {seconds:7.2f} {speed} {added:12.0f}\n")


if __name__ == "__main__":
    main()
