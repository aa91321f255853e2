"""`python -m tests.benchmarks.start_up`: CPU time of commands, relative to importing typer.

Each command runs in turn with the import, several times; the least of each counts. trio is hidden:
it comes with what tests need, and the HTTP client imports it where it is there.
"""

import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence

COMMANDS: Mapping[str, Sequence[str]] = {
    "--version": ["--version"],
    "--help": ["--help"],
    "list": ["list", "--server", "http://127.0.0.1:1"],
}
_ROUNDS = 5
_HIDDEN = "import sys; sys.modules['trio'] = None; "


def ratios() -> dict[str, float]:
    """By command, its CPU time over that of `import typer`."""
    programs = {"typer": f"{_HIDDEN}import typer"}
    for name, words in COMMANDS.items():
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


if __name__ == "__main__":
    for command, ratio in ratios().items():
        sys.stdout.write(f"{command:<12} {ratio:.1f} times `import typer`\n")
