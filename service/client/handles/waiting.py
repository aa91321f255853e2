"""How far a study is, while one waits: a bar, a line in a notebook, or plain lines."""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Protocol, TextIO

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
    if not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        yield LineView()
        return
    # Most clients show no bar, and start without what draws one.
    from service.client.handles.bar import open_bar

    with open_bar(name) as bar:
        yield bar


class _Nothing:
    def show(self, study: StudyDocument) -> None:
        """Nobody looks."""


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
    # A notebook has it imported; nobody else pays for that.
    ipython: Any = sys.modules.get("IPython")
    if ipython is None or not hasattr(ipython.get_ipython(), "kernel"):
        return None
    display: Any = ipython.display.display
    return display
