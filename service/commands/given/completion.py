"""What a shell may complete: ids that the server knows, where it answers at once.

A shell that completes shows no errors: whatever goes wrong, there is nothing to complete.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING

import typer

from service.commands.connection import find_server
from service.commands.given.references import resolved

if TYPE_CHECKING:
    from service.client import Client

Completion = tuple[str, str]
"""A value, and what it is."""

_SECONDS = 1.0
_MOST = 50
_UNSAFE = re.compile(r"[^\w .,/-]")


def studies(context: typer.Context, incomplete: str) -> list[Completion]:
    """Ids of the newest studies."""
    return _asked(
        context,
        incomplete,
        lambda client: ((one.id, f"{one.name}, {one.state}") for one in client.studies()),
    )


def trials(context: typer.Context, incomplete: str) -> list[Completion]:
    """Numbers of the trials of the study that was named before."""
    named = {"study_id": str(context.params.get("study_id"))}
    return _asked(
        context,
        incomplete,
        lambda client: (
            (str(one.number), f"{one.architecture} {one.parametrization}, {one.outcome}")
            for one in client.trials(resolved(client, named)["study_id"])
        ),
    )


def collections(context: typer.Context, incomplete: str) -> list[Completion]:
    """Ids of the newest collections."""
    return _asked(
        context,
        incomplete,
        lambda client: ((one.id, f"{one.name}, {one.state}") for one in client.collections()),
    )


def datasets(context: typer.Context, incomplete: str) -> list[Completion]:
    """Ids of the newest data sets."""
    return _asked(
        context,
        incomplete,
        lambda client: ((one.id, one.name) for one in client.datasets()),
    )


def models(context: typer.Context, incomplete: str) -> list[Completion]:
    """Ids of the newest uploaded models."""
    return _asked(
        context,
        incomplete,
        lambda client: ((one.id, one.name) for one in client.models()),
    )


def _asked(
    context: typer.Context, incomplete: str, ask: "Callable[[Client], Iterator[Completion]]"
) -> list[Completion]:
    from service.client import Client, ClientError

    try:
        place = find_server(context.params.get("server"), context.params.get("data_dir"))
        with closing(Client(place.url, timeout=_SECONDS, patience=0)) as client:
            fitting = (found for found in ask(client) if found[0].startswith(incomplete))
            # A shell evaluates what it is given, and a name is anybody's text.
            return [(value, _UNSAFE.sub(" ", what)) for value, what in islice(fitting, _MOST)]
    except (ClientError, ValueError, typer.BadParameter):
        return []
