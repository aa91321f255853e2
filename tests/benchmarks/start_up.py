"""`python -m tests.benchmarks.start_up`: CPU time of commands, relative to importing typer.

Each command runs in turn with the import, several times; the least of each counts. `list` asks a
real server, with one study. trio is hidden: it comes with what tests need, and the HTTP client
imports it where it is there.
"""

import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.service.listening import listening
from tests.service.site import Site

COMMANDS: Mapping[str, Sequence[str]] = {
    "--version": ["--version"],
    "--help": ["--help"],
    "list": ["list", "--server", "URL"],
}
_ROUNDS = 5
_HIDDEN = "import sys; sys.modules['trio'] = None; "


def ratios(server: str) -> dict[str, float]:
    """By command, its CPU time over that of `import typer`."""
    programs = {"typer": f"{_HIDDEN}import typer"}
    for name, given in COMMANDS.items():
        words = [server if word == "URL" else word for word in given]
        run = "from service.cli import main; main()"
        programs[name] = f"{_HIDDEN}sys.argv = ['reflectory', *{words!r}]; {run}"
    least = dict.fromkeys(programs, float("inf"))
    with tempfile.TemporaryDirectory() as home:
        for _ in range(_ROUNDS):
            for name, program in programs.items():
                least[name] = min(least[name], _seconds(program, home))
    return {name: least[name] / least["typer"] for name in COMMANDS}


def _seconds(program: str, home: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-c", program],
        env={"HOME": home, "PYTHONPATH": ":".join(filter(None, sys.path))},
        capture_output=True,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print the ratios."""
    with tempfile.TemporaryDirectory() as folder:
        site = Site(Path(folder) / "data")
        site.study()
        with listening(site) as (host, port):
            for command, ratio in ratios(f"http://{host}:{port}").items():
                sys.stdout.write(f"{command:<12} {ratio:.1f} times `import typer`\n")
        site.close()


if __name__ == "__main__":
    main()
