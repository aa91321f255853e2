"""What each file of tests may take, shown at the end of a run, and used to begin with the longest.

`budgets.toml` names the seconds of the files that take more than a few, on two idle cores. A file
that is over its budget is a line of warning and no failure: a machine may be busy.
"""

import tomllib
from collections import defaultdict
from pathlib import Path

import pytest

from tests.patience import slowness

DEFAULT_SECONDS = 10.0
"""For files that are not named."""

_SHOWN = 20


class Budgets:
    """Adds up what the tests of each file take, and orders files by their budgets."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)
        self._budgets = budgets()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """The longest files first, for whichever is last is run while other processes wait."""
        items.sort(key=lambda item: -self._budget(_file(item.nodeid)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[_file(report.nodeid)] += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        longest = sorted(self._seconds.items(), key=lambda item: -item[1])
        if sum(self._seconds.values()) < DEFAULT_SECONDS:
            return
        terminalreporter.section("seconds of the slowest files, and their budgets")
        for file, seconds in longest[:_SHOWN]:
            terminalreporter.write_line(f"{seconds:8.1f} {self._budget(file):6.0f}  {file}")
        slower = slowness()
        for file, seconds in longest:
            if seconds > self._budget(file) * slower:
                terminalreporter.write_line(
                    f"WARNING: {file} took {seconds:.0f} s, over its budget of "
                    f"{self._budget(file):.0f} s on a machine that is {slower:.1f} times as slow",
                    yellow=True,
                )

    def _budget(self, file: str) -> float:
        return self._budgets.get(file, DEFAULT_SECONDS)


def budgets() -> dict[str, float]:
    """The named files with their seconds."""
    return tomllib.loads((Path(__file__).parent / "budgets.toml").read_text())["seconds"]


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]
