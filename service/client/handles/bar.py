"""How far a study is, as a bar on a terminal."""

from collections.abc import Generator
from contextlib import contextmanager

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from service.api.studies.schemas import StudyDocument


@contextmanager
def open_bar(name: str) -> "Generator[Bar]":
    """A bar for a study, which stays when all is done."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn()) as progress:
        yield Bar(progress, name)


class Bar:
    """One line that moves."""

    def __init__(self, progress: Progress, name: str) -> None:
        self._progress = progress
        self._task = progress.add_task(escape(name), total=None)

    def show(self, study: StudyDocument) -> None:
        """Move the bar."""
        done, total = study.progress.steps
        words = f"{escape(study.name)} {study.state}"
        self._progress.update(self._task, completed=done, total=total, description=words)
