"""What a process can ask about the commits of others."""

from collections.abc import Hashable
from typing import Protocol


class Looks(Protocol):
    """Tells states of the database apart. Threads may share it.

    A look is far cheaper than a query, so that what was made of rows can be given out again
    for as long as nothing has changed, and never for longer.
    """

    waits: bool
    """Whether a look waits for another machine, so that an event loop has it made in a thread."""

    def look(self) -> Hashable | None:
        """What is the same as another look's answer only if nothing was committed in between.

        Null where the database does not tell: then nothing is known to be the same.
        """
        ...

    def close(self) -> None:
        """Give the connection back; the next look opens another."""
        ...


class Changes(Looks, Protocol):
    """Looks, and waits for what there is to see."""

    def wait(self, seconds: float) -> None:
        """Wait until something may have been committed since the last wait, or for so long.

        It may end early without a commit, and may miss one of a program that notifies nobody: looks
        decide.
        """
        ...

    def wake(self) -> None:
        """End a wait that is under way, or the next one."""
        ...

    def fileno(self) -> int | None:
        """What can be read from when something may have been committed; null: only looks tell."""
        ...

    def drain(self) -> None:
        """Have `fileno` not be read from again before the next commit."""
        ...
