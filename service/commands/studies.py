"""`submit`, `watch` and `show`."""

import json
import sys
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.console import Console
from rich.table import Table

from search.documents.several_tasks import several_tasks_at
from search.documents.spaces import DryRun
from service.api.fronts.schemas import FrontDocument
from service.api.studies.schemas import StudyDocument
from service.client import Client
from service.client.transport.described import WATCH_PATIENCE
from service.commands.collections import submit_collection
from service.commands.connection import UNFINISHED, Asked, asking, print_json
from service.commands.given.arguments import StudyArgument
from service.commands.given.references import described
from service.commands.shown.following import follow, open_view
from service.commands.shown.network_tables import is_of_a_network, network_front_table
from service.commands.shown.tables import dry_run_table, front_table, in_time, study_table

_INTERRUPTED = 130
_LOOKED_AT = 100
"""Studies among which one of the same task is looked for."""


@asking
def submit(
    asked: Asked,
    spec: Annotated[
        Path,
        typer.Argument(metavar="SPEC.json", help="The study's document; - reads it from stdin."),
    ],
    watch: Annotated[bool, typer.Option("--watch", help="Follow it until it has ended.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check it and show the space; store nothing.")
    ] = False,
) -> None:
    """Submit a study, or a collection: a document of several tasks or data sets."""
    document = read_spec(spec)
    if several_tasks_at(document) is not None:
        submit_collection(asked, document, watch=watch, dry_run=dry_run)
        return
    if dry_run:
        answer = asked.client.dry_run(document)
        asked.show(answer, *([] if asked.as_json else [_dry_run(asked.client, document, answer)]))
        return
    study = asked.client.submit(document)
    asked.show(study, links_of(asked.client, study))
    if watch:
        follow_to_the_end(asked.client, study, as_json=asked.as_json)


@asking
def watch(asked: Asked, study_id: StudyArgument) -> None:
    """Follow a study until it has ended. Ctrl-C leaves it running."""
    follow_to_the_end(asked.client, asked.client.study(study_id), as_json=asked.as_json)


@asking
def show(asked: Asked, study_id: StudyArgument) -> None:
    """Show one study: where it stands, how far it is, and where to look at it."""
    study = asked.client.study(study_id)
    asked.show(study, study_table(study), links_of(asked.client, study))


def _dry_run(client: Client, document: Mapping[str, Any], answer: DryRun) -> Table:
    return dry_run_table(answer, f"time: {_time_of(client, document, answer)}")


def _time_of(client: Client, document: Mapping[str, Any], answer: DryRun) -> str:
    """How long a study may take, by the newest study of the same task."""
    trials, epochs, kind = answer.trials, answer.epochs, document["task"]["kind"]
    if trials is None or epochs is None:
        return "not known, for the server does not say how many trials there are"
    for study in islice(client.studies(), _LOOKED_AT):
        done, seconds = study.progress.epochs_trained, study.progress.wall_seconds
        if study.spec.get("task", {}).get("kind") == kind and done and seconds > 0:
            whole = in_time(trials * epochs * seconds / done)
            return (
                f"about {whole} for {trials:,} trials of {epochs:,} epochs, as fast as study "
                f"{described(study)}"
            )
    return f"not known until the first trial: no study of the task {kind} has run here"


def read_spec(path: Path) -> dict[str, Any]:
    """The JSON object in a file, or on stdin for `-`."""
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
        document: Any = json.loads(text, object_pairs_hook=_each_once)
    except json.JSONDecodeError as error:
        raise typer.BadParameter(f"{path} is no JSON: {error}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise typer.BadParameter(f"{path} cannot be read: {error}") from error
    if not isinstance(document, dict):
        raise typer.BadParameter(f"{path} holds no JSON object")
    return cast("dict[str, Any]", document)


def _each_once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object, of which no key is given twice."""
    document: dict[str, Any] = {}
    for key, value in pairs:
        if key in document:
            raise ValueError(f"the key {json.dumps(key)} is there twice; allowed is once")
        document[key] = value
    return document


def links_of(client: Client, study: StudyDocument) -> str:
    """Where to look at a study, line by line."""
    paths = {name: study.links.get(name) for name in ("page", "dashboard", "front")}
    links = [f"  {name:<11} {client.server}{path}" for name, path in paths.items() if path]
    return "\n".join([f"study {study.id} ({study.name}) is {study.state}", *links])


def follow_to_the_end(client: Client, study: StudyDocument, *, as_json: bool) -> None:
    """Follow a study and show its front; the exit code says whether it finished."""
    ended = watched_to_the_end(client, study, as_json=as_json)
    if not as_json:
        front = client.front(study.id)
        if front.points:
            Console().print(front_shown(client, study.id, front))
        typer.echo(end_of(ended))
    if ended.state != "finished":
        raise typer.Exit(UNFINISHED)


def front_shown(client: Client, study_id: str, front: FrontDocument) -> Table:
    """A front as a table, of a network's files with what their reports tell."""
    if is_of_a_network(front):
        return network_front_table(front, client.network_reports(study_id, front))
    return front_table(front, hyperparameters=Console().width >= 140)


def end_of(study: StudyDocument) -> str:
    """How a study ended, in a sentence."""
    reason = f" ({study.state_reason})" if study.state_reason else ""
    return f"study {study.id} is {study.state}{reason}"


def watched_to_the_end(client: Client, study: StudyDocument, *, as_json: bool) -> StudyDocument:
    """Follow a study; returns it as it ended.

    Raises:
        typer.Exit: Ctrl-C ended the watching, not the study.
    """
    try:
        if not as_json:
            with open_view(study) as view:
                return follow(client, study.id, view)
        for event in client.watch(study.id):
            print_json(event)
        return client.study(study.id, patience=WATCH_PATIENCE)
    except KeyboardInterrupt:
        typer.echo(
            f"\nThe study goes on. See it again: reflectory watch {study.id}; "
            f"end it: reflectory cancel {study.id}",
            err=True,
        )
        raise typer.Exit(_INTERRUPTED) from None
