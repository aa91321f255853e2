"""What moves while one waits, where a person watches: bars of transfers, and a spinner."""

from collections.abc import Generator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from service.client.downloads import ToldProgress
from service.commands.connection import is_terminal


@contextmanager
def spinner(what: str, *, quiet: bool) -> Generator[None]:
    """Something that turns while something is waited for whose end nobody knows."""
    if quiet or not is_terminal():
        yield
        return
    with Console().status(escape(what)):
        yield


@contextmanager
def transfer_bar(
    name: str, *, quiet: bool, afterwards: str | None = None
) -> Generator[ToldProgress | None]:
    """A bar for one transfer; null where nobody watches.

    Args:
        name: what is on its way.
        quiet: show nothing.
        afterwards: what happens when all is sent, while the answer is waited for.
    """
    if quiet or not is_terminal():
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, TransferSpeedColumn(), transient=True) as progress:
        # A length that is not known (yet) is shown as a bar that moves to and fro.
        task = progress.add_task(escape(name), total=None)

        def told(done: int, total: int | None) -> None:
            description = afterwards if afterwards is not None and done == total else name
            progress.update(task, completed=done, total=total, description=escape(description))

        yield told
