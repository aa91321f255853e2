"""The command line: `reflectory <command>`.

A command's module is imported when it is called: the overview, and each command, start at once.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

_OURS = frozenset({"", "service", "search", "models", "storage"})
_WRONG_USAGE = 2
_STUDIES = "Studies"
_RESULTS = "Results"
_INPUTS = "What studies are made of"
_SERVER = "The server"


class _Entry(NamedTuple):
    """A command, or a group of some."""

    place: str
    """Module in `service.commands`, and name."""
    panel: str | None
    """Where it stands in the overview; None: it is hidden."""
    about: str
    """In the overview: its docstring's first line."""
    example: str | None = None


ENTRIES: Mapping[str, _Entry] = {
    "demo": _Entry(
        "demo:demo",
        _STUDIES,
        "Start a server of its own, run a study on it, download the best model, and stop.",
        "demo --out demo-output",
    ),
    "submit": _Entry(
        "studies:submit",
        _STUDIES,
        "Submit a study, or a collection: a document of several tasks or data sets.",
        "submit deploy/examples/digits.json --watch",
    ),
    "compress": _Entry(
        "compress:compress",
        _STUDIES,
        "Compress a trained network: upload it, search, and download the front's files.",
        "compress gru.safetensors --task digits --limit parameters=2000 --out small",
    ),
    "watch": _Entry(
        "studies:watch",
        _STUDIES,
        "Follow a study until it has ended. Ctrl-C leaves it running.",
        "watch 3f1c9a2b7d4e",
    ),
    "list": _Entry(
        "lists:list_studies", _STUDIES, "List studies, newest first.", "list --state running"
    ),
    "show": _Entry(
        "studies:show",
        _STUDIES,
        "Show one study: where it stands, how far it is, and where to look at it.",
        "show 3f1c9a2b7d4e --json",
    ),
    "pause": _Entry(
        "changes:pause",
        _STUDIES,
        "Pause a study. Running trials save a checkpoint and stop; none starts until it resumes.",
        "pause 3f1c9a2b7d4e",
    ),
    "resume": _Entry(
        "changes:resume", _STUDIES, "Resume a paused study where it stopped.", "resume 3f1c9a2b7d4e"
    ),
    "budget": _Entry(
        "changes:budget",
        _STUDIES,
        "Give a study another budget; a finished one runs on.",
        "budget 3f1c9a2b7d4e --trials 60",
    ),
    "priority": _Entry(
        "changes:priority",
        _STUDIES,
        "Let a study come before others, or after them, where slots become free.",
        "priority 3f1c9a2b7d4e 5",
    ),
    "label": _Entry(
        "changes:label",
        _STUDIES,
        "Give a study another name, tags to find it by, or notes.",
        "label 3f1c9a2b7d4e --tag thesis --tag digits",
    ),
    "enqueue": _Entry(
        "changes:enqueue",
        _STUDIES,
        "Try a configuration of your own next, or go on from a trial; a finished study runs on.",
        "enqueue 3f1c9a2b7d4e --architecture rnn --parametrization low_rank -p low_rank.d=4",
    ),
    "reproduce": _Entry(
        "reproduce:reproduce",
        _STUDIES,
        "Train the rows of a paper's table, and print what is measured beside what is printed.",
        "reproduce ucr --rows GunPoint,Coffee --seeds 2 --budget 30min",
    ),
    "cancel": _Entry(
        "changes:cancel",
        _STUDIES,
        "Cancel a study: what waits and what runs ends, what is complete stays.",
        "cancel 3f1c9a2b7d4e",
    ),
    "delete": _Entry(
        "changes:delete",
        _STUDIES,
        "Delete a study that has ended, with all of its trials and files.",
        "delete 3f1c9a2b7d4e",
    ),
    "front": _Entry(
        "results:front",
        _RESULTS,
        "Show the Pareto front of a study, so far or final.",
        "front 3f1c9a2b7d4e --csv",
    ),
    "importance": _Entry(
        "results:importance",
        _RESULTS,
        "Show what each dimension of the space did to each objective, so far.",
        "importance 3f1c9a2b7d4e",
    ),
    "trials": _Entry(
        "trials:trials",
        _RESULTS,
        "List the trials of a study with their outcomes and reasons, or show one with its curve.",
        "trials 3f1c9a2b7d4e --outcome infeasible",
    ),
    "report": _Entry(
        "results:report",
        _RESULTS,
        "Write a study's report: one HTML page with its plots, that needs nothing else.",
        "report 3f1c9a2b7d4e --out digits.html",
    ),
    "download": _Entry(
        "results:download",
        _RESULTS,
        "Download the folder of one trial, or of each point on the front.",
        "download 3f1c9a2b7d4e 19 --out best",
    ),
    "export": _Entry(
        "export:export",
        _RESULTS,
        "Write a run for each trial to MLflow, W&B or TensorBoard. A second export updates them.",
        "export 3f1c9a2b7d4e --to tensorboard --place runs",
    ),
    "log": _Entry(
        "trials:log",
        _RESULTS,
        "Print what the worker of a trial wrote, in its last attempt.",
        "log 3f1c9a2b7d4e 19 --follow",
    ),
    "measure": _Entry(
        "trials:measure",
        _RESULTS,
        "Measure a trial's throughput again, alone, and wait for it. Ctrl-C only ends the waiting.",
        "measure 3f1c9a2b7d4e 19",
    ),
    "catalog": _Entry(
        "results:catalog",
        _INPUTS,
        "Show what a study may name: architectures, tasks, presets, samplers and the rest.",
        "catalog",
    ),
    "papers": _Entry(
        "papers:papers",
        _INPUTS,
        "Show the tables of the papers, or the rows of one: what is printed and misprinted.",
        "papers ucr",
    ),
    "serve": _Entry(
        "operators.serve:serve",
        _SERVER,
        "Run the whole service on this machine until Ctrl-C; a later start goes on from there.",
        "serve --data-dir data --port 8080",
    ),
    "doctor": _Entry(
        "operators.doctor:doctor",
        _SERVER,
        "Look at what is there on this machine and its server, what is wrong, and what to do.",
        "doctor --data-dir data",
    ),
    "devices": _Entry(
        "server:devices",
        _SERVER,
        "Show the devices that studies run on: their slots, what runs there, and who measures.",
        "devices",
    ),
    "backup": _Entry(
        "operators.backup:backup",
        _SERVER,
        "Copy rows, files and the signing secret of a server, which may run meanwhile.",
        "backup /backups/reflectory --data-dir data",
    ),
    "migrate": _Entry(
        "operators.serve:migrate",
        _SERVER,
        "Bring the database to this program's version; `serve` does it by itself.",
        "migrate --data-dir data",
    ),
    "api": _Entry(
        "operators.serve:api",
        _SERVER,
        "Serve the HTTP API alone, over tables that are migrated; `serve` runs it by itself.",
        "api --data-dir data",
    ),
    "coordinator": _Entry(
        "operators.serve:coordinator",
        _SERVER,
        "Ask, dispatch and tell: run the studies on this machine; `serve` runs it by itself.",
        "coordinator --data-dir data",
    ),
    "worker": _Entry(
        "operators.worker:worker",
        _SERVER,
        "Run attempts of a server's studies on this machine until Ctrl-C; nothing listens here.",
        "worker --server http://search.example:8080",
    ),
    "collections": _Entry(
        "collections:commands", _STUDIES, "Studies of several data sets, and ranks over them."
    ),
    "datasets": _Entry("datasets:commands", _INPUTS, "Your own data, for studies to train on."),
    "models": _Entry(
        "models:commands", _INPUTS, "Your own trained models, for studies to compress."
    ),
    "keys": _Entry("operators.keys:commands", _SERVER, "API keys, in the database of a server."),
    "quota": _Entry(
        "operators.quota:commands", _SERVER, "What tenants may have, and what they have."
    ),
    "artifacts": _Entry(
        "operators.artifacts:commands", _SERVER, "Where checkpoints and reports are kept."
    ),
    "dashboard": _Entry(
        "operators.serve:dashboard", None, "Serve Optuna's dashboard, read-only, on its socket."
    ),
}


def loaded(name: str) -> Any:
    """A command, or a group of some, with its module.

    Raises:
        KeyError: there is no such command.
    """
    entry = ENTRIES[name]
    module, _, attribute = entry.place.partition(":")
    found: Any = getattr(import_module(f"service.commands.{module}"), attribute)
    above = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    if isinstance(found, typer.Typer):
        above.add_typer(found, name=name)
    else:
        epilog = None if entry.example is None else f"Example: reflectory {entry.example}"
        above.command(name, epilog=epilog, hidden=entry.panel is None)(found)
    return get_group(above).commands[name]


class _Commands(TyperGroup):
    """All of them; until one is called, only what the overview says."""

    def __init__(self, **given: Any) -> None:
        for name, entry in ENTRIES.items():
            given["commands"][name] = TyperCommand(
                name,
                help=entry.about,
                hidden=entry.panel is None,
                rich_help_panel=entry.panel,
            )
        super().__init__(**given)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command that the first argument names, ready to be called."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command if name is None else loaded(name), rest


application = typer.Typer(
    cls=_Commands,
    name="reflectory",
    help="How small and how fast can this network get before it loses accuracy?",
    epilog="Exit codes: 0 done; 1 the study or a download failed or was cancelled; 2 wrong usage; "
    "3 the server refused; 4 no server answers; 130 interrupted. REFLECTORY_KEY holds the key to "
    "a server that asks for one.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _tell_versions(asked: bool) -> None:
    if asked:
        from service.commands.operators.versions import tell_versions

        tell_versions()
        raise typer.Exit


@application.callback()
def _root(
    _version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_tell_versions,
            is_eager=True,
            help="Print the versions of this program, of Python and of the server, and end.",
        ),
    ] = False,
) -> None:
    """Everything is in the commands."""


def main() -> None:
    """Run the command that the arguments name.

    Commands that run a part of a server need packages that a client does without.
    """
    try:
        application()
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in _OURS:
            raise
        typer.echo(
            f"this command needs {package}, which is not installed: "
            "pip install 'reflectory[server]'",
            err=True,
        )
        raise SystemExit(_WRONG_USAGE) from error


if __name__ == "__main__":
    main()
