"""`python -m tests.newcomer`: the first hour of somebody new, by the documentation alone, timed.

A fresh clone is made in an empty folder, and what the README and two tutorials tell to type is
typed there, as it is: `make demo`, a GRU of one's own to a smaller one, a CSV file of one's own to
labels. Downloads are part of the first time, since they are part of the first hour.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from tests.system.server.test_guide import BLOCK, FILES, script

ROOT = Path(__file__).parents[1]
TUTORIALS = {
    "own GRU to a smaller GRU": "compress-your-gru.md",
    "own CSV to labels": "your-data-to-onnx.md",
}
_URL = "http://127.0.0.1:8080"
_START_SECONDS = 120.0


def main() -> None:
    """Walk the path, and print a row of minutes for each part."""
    with tempfile.TemporaryDirectory(prefix="reflectory-newcomer-") as folder:
        clone = Path(folder) / "reflectory"
        bin_folder = clone / ".venv" / "bin"
        # What is set for the environment that this runs in is not what somebody new has.
        away = ("VIRTUAL_ENV", "PYTHONPATH")
        environment = {name: value for name, value in os.environ.items() if name not in away}
        environment["PATH"] = f"{bin_folder}{os.pathsep}{environment['PATH']}"

        def run(*words: str, here: Path = clone) -> Callable[[], object]:
            return lambda: subprocess.run(
                words, cwd=here, env=environment, check=True, stdout=subprocess.DEVNULL
            )

        _row("what", "minutes")
        _row("---", "---:")
        cloning = run("git", "clone", "-q", str(ROOT), str(clone), here=Path(folder))
        _timed("clone", cloning)
        _timed("`make .venv/installed`, downloads included", run("make", ".venv/installed"))
        _timed("`make demo`, when that is done: first front", run("make", "demo"))
        with _served(bin_folder, Path(folder), environment):
            for what, name in TUTORIALS.items():
                page = clone / "deploy" / "docs" / "tutorials" / name
                here = Path(folder) / page.stem
                here.mkdir()
                for language, text in BLOCK.findall(page.read_text()):
                    if language in FILES:
                        (here / FILES[language]).write_text(text)
                typed = script(page, _URL, shorter={})
                _timed(f"{what}, by {name}", run("bash", "-c", typed, here=here))


@contextmanager
def _served(bin_folder: Path, folder: Path, environment: dict[str, str]) -> Generator[None]:
    """`reflectory serve`, as the tutorials have it in a terminal of its own."""
    command = [str(bin_folder / "reflectory"), "serve", "--data-dir", str(folder / "data")]
    server = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    )
    try:
        assert server.stdout is not None
        if not server.stdout.readline():
            raise SystemExit(f"`reflectory serve` ended with status {server.wait()}")
        environment["REFLECTORY_DATA_DIR"] = str(folder / "data")
        yield
    finally:
        server.terminate()
        server.wait(timeout=_START_SECONDS)


def _timed(what: str, do: Callable[[], object]) -> None:
    begun = time.monotonic()
    do()
    _row(what, f"{(time.monotonic() - begun) / 60:.1f}")


def _row(what: str, minutes: str) -> None:
    sys.stdout.write(f"| {what} | {minutes} |\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
