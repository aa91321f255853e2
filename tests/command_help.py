"""Every command that users have, and the help that it prints."""

from collections.abc import Iterator
from typing import Any

from typer.testing import CliRunner

from service.cli import ENTRIES, application, loaded


def _leaves(command: Any, *way: str) -> Iterator[tuple[str, ...]]:
    if not hasattr(command, "commands"):
        yield way
        return
    for name, inner in command.commands.items():
        if not inner.hidden:
            yield from _leaves(inner, *way, name)


COMMANDS = tuple(
    way
    for name, entry in ENTRIES.items()
    if entry.panel is not None
    for way in _leaves(loaded(name), name)
)


def help_of(*way: str) -> str:
    result = CliRunner().invoke(application, [*way, "--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    return result.output


def all_help() -> str:
    return "".join(help_of(*way) for way in ((), *COMMANDS))
