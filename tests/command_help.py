"""Every command that users have, and the help that it prints."""

from collections.abc import Iterator
from typing import Any

import typer.main
from typer.testing import CliRunner

from service.cli import application


def _visible(group: Any, *above: str) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        if command.hidden:
            continue
        if hasattr(command, "commands"):
            yield from _visible(command, *above, name)
        else:
            yield (*above, name)


COMMANDS = tuple(_visible(typer.main.get_command(application)))


def help_of(*way: str) -> str:
    result = CliRunner().invoke(application, [*way, "--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    return result.output


def all_help() -> str:
    return "".join(help_of(*way) for way in ((), *COMMANDS))
