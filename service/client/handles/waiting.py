"""How far a study is, while one waits: a bar, a line in a notebook, or plain lines."""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Protocol, TextIO

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from service.api.studies.schemas import StudyDocument
from service.client.handles.html import table


class View(Protocol):
    """What a study is shown on."""

    def show(self, study: StudyDocument) -> None:
        """Where the study stands now."""
        ...


@contextmanager
def view_of(name: str, *, progress: bool) -> Generator[View]:
    """The view that fits where the output goes; one that shows nothing without `progress`."""
    if not progress:
        yield _Nothing()
        return
    display = _notebook_display()
    if display is not None:
        yield _NotebookView(display)
        return
    console = Console()
    if not console.is_terminal or console.is_dumb_terminal:
        yield LineView()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console) as bar:
        yield _BarView(bar, name)


class _Nothing:
    def show(self, study: StudyDocument) -> None:
        """Nobody looks."""


class _BarView:
    def __init__(self, bar: Progress, name: str) -> None:
        self._bar = bar
        self._task = bar.add_task(escape(name), total=None)

    def show(self, study: StudyDocument) -> None:
        """Move the bar."""
        done, total = study.progress.steps
        words = f"{escape(study.name)} {study.state}"
        self._bar.update(self._task, completed=done, total=total, description=words)


class LineView:
    """A line whenever the study has come further, for logs and pipes."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = sys.stdout if out is None else out
        self._last = ""

    def show(self, study: StudyDocument) -> None:
        """Write where it stands, if that has changed."""
        line = _line(study)
        if line != self._last:
            self._out.write(f"{line}\n")
            self._out.flush()
            self._last = line


class _NotebookView:
    """One output of a cell, which is replaced."""

    def __init__(self, display: Any) -> None:
        self._display = display
        self._handle: Any = None

    def show(self, study: StudyDocument) -> None:
        """Replace what the cell shows."""
        done, total = study.progress.steps
        row = (study.name, study.state, f"{done} of {total}")
        html = table(("study", "state", "progress"), [row])
        data = {"text/plain": _line(study), "text/html": html}
        if self._handle is None:
            self._handle = self._display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)


def _line(study: StudyDocument) -> str:
    done, total = study.progress.steps
    return f"study {study.id} {study.state}: {done} of {total}"


def _notebook_display() -> Any:
    """IPython's `display` where a notebook's kernel runs; null elsewhere."""
    # Whoever runs in a notebook has it imported; nobody else pays for that.
    ipython: Any = sys.modules.get("IPython")
    if ipython is None or not hasattr(ipython.get_ipython(), "kernel"):
        return None
    display: Any = ipython.display.display
    return display
