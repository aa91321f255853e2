"""The command line: `reflectory <command>`."""

from collections.abc import Callable
from typing import NamedTuple

import typer

from service.commands import (
    changes,
    compress,
    datasets,
    demo,
    models,
    results,
    server,
    studies,
    trials,
)
from service.commands.operators import artifacts, backup, keys, quota, serve, worker

_STUDIES = "Studies"
_RESULTS = "Results"
_INPUTS = "What studies are made of"
_SERVER = "The server"


class _Command(NamedTuple):
    """A command, where it stands in the overview, and how it is used."""

    run: Callable[..., None]
    panel: str
    example: str


_COMMANDS = {
    "submit": _Command(studies.submit, _STUDIES, "submit deploy/examples/digits.json --watch"),
    "compress": _Command(
        compress.compress,
        _STUDIES,
        "compress gru.safetensors --task digits --limit parameters=2000 --out small",
    ),
    "watch": _Command(studies.watch, _STUDIES, "watch 3f1c9a2b7d4e"),
    "list": _Command(studies.list_studies, _STUDIES, "list --state running"),
    "show": _Command(studies.show, _STUDIES, "show 3f1c9a2b7d4e --json"),
    "pause": _Command(changes.pause, _STUDIES, "pause 3f1c9a2b7d4e"),
    "resume": _Command(changes.resume, _STUDIES, "resume 3f1c9a2b7d4e"),
    "budget": _Command(changes.budget, _STUDIES, "budget 3f1c9a2b7d4e --trials 60"),
    "priority": _Command(changes.priority, _STUDIES, "priority 3f1c9a2b7d4e 5"),
    "enqueue": _Command(
        changes.enqueue,
        _STUDIES,
        "enqueue 3f1c9a2b7d4e --architecture rnn --parametrization low_rank -p low_rank.d=4",
    ),
    "cancel": _Command(studies.cancel, _STUDIES, "cancel 3f1c9a2b7d4e"),
    "delete": _Command(changes.delete, _STUDIES, "delete 3f1c9a2b7d4e"),
    "front": _Command(results.front, _RESULTS, "front 3f1c9a2b7d4e --csv"),
    "importance": _Command(results.importance, _RESULTS, "importance 3f1c9a2b7d4e"),
    "trials": _Command(trials.trials, _RESULTS, "trials 3f1c9a2b7d4e --outcome infeasible"),
    "report": _Command(results.report, _RESULTS, "report 3f1c9a2b7d4e --out digits.html"),
    "download": _Command(results.download, _RESULTS, "download 3f1c9a2b7d4e 19 --out best"),
    "log": _Command(trials.log, _RESULTS, "log 3f1c9a2b7d4e 19 --follow"),
    "measure": _Command(trials.measure, _RESULTS, "measure 3f1c9a2b7d4e 19"),
    "catalog": _Command(results.catalog, _INPUTS, "catalog"),
    "serve": _Command(serve.serve, _SERVER, "serve --data-dir data --port 8080"),
    "devices": _Command(server.devices, _SERVER, "devices"),
    "backup": _Command(backup.backup, _SERVER, "backup /backups/reflectory --data-dir data"),
    "migrate": _Command(serve.migrate, _SERVER, "migrate --data-dir data"),
    "api": _Command(serve.api, _SERVER, "api --data-dir data"),
    "coordinator": _Command(serve.coordinator, _SERVER, "coordinator --data-dir data"),
    "worker": _Command(worker.worker, _SERVER, "worker --server http://search.example:8080"),
}

application = typer.Typer(
    name="reflectory",
    help="How small and how fast can this network get before it loses accuracy?",
    epilog="Exit codes: 0 done; 1 the study or a download failed or was cancelled; 2 wrong usage; "
    "3 the server refused; 4 no server answers; 130 interrupted. REFLECTORY_KEY holds the key to "
    "a server that asks for one.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for _name, _command in _COMMANDS.items():
    application.command(
        _name, epilog=f"Example: reflectory {_command.example}", rich_help_panel=_command.panel
    )(_command.run)
application.add_typer(datasets.commands, name="datasets", rich_help_panel=_INPUTS)
application.add_typer(models.commands, name="models", rich_help_panel=_INPUTS)
application.add_typer(keys.commands, name="keys", rich_help_panel=_SERVER)
application.add_typer(quota.commands, name="quota", rich_help_panel=_SERVER)
application.add_typer(artifacts.commands, name="artifacts", rich_help_panel=_SERVER)
for _hidden in (serve.dashboard, demo.demo):
    application.command(hidden=True)(_hidden)


def main() -> None:
    """Run the command that the arguments name."""
    application()


if __name__ == "__main__":
    main()
