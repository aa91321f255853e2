"""Asking before something is lost that nobody can bring back."""

import sys
from typing import Annotated

import typer

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def confirm(question: str, *, yes: bool, as_json: bool, undone: str) -> None:
    """Ask a person whether to go on; programs say `--yes`.

    Args:
        question: what would happen, with names and amounts, without its sign.
        yes: whether the answer was given already.
        as_json: whether a program asks.
        undone: what is printed where the answer is no, such as `nothing was deleted`.

    Raises:
        typer.BadParameter: nobody is there to be asked.
        typer.Exit: the answer is no.
    """
    if yes:
        return
    if as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise typer.BadParameter(
            f"{question}? Nobody is there to answer; allowed without a terminal is --yes",
            param_hint="--yes",
        )
    if not typer.confirm(f"{question}?"):
        typer.echo(undone, err=True)
        raise typer.Exit(1)
