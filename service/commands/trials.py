"""`trials`, `log` and `measure`: what was tried, what its workers wrote, and how fast it is."""

from typing import Annotated, Literal

import typer
from rich.console import Console

from service.client import Client
from service.commands.arguments import AnyTrialArgument, StudyArgument, TrialArgument
from service.commands.bars import spinner
from service.commands.connection import (
    DataDirOption,
    JsonOption,
    ServerOption,
    connected,
    print_json,
)
from service.commands.tables import shown
from service.commands.trial_tables import curve_table, trial_table, trials_table

_Outcome = Literal["queued", "running", "complete", "stopped", "infeasible", "failed", "cancelled"]


def trials(
    study_id: StudyArgument,
    trial: AnyTrialArgument = None,
    outcome: Annotated[
        _Outcome | None, typer.Option(help="Only trials that stand or ended so.")
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV: all of them.")] = False,
    server: ServerOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the trials of a study with their outcomes and reasons, or show one with its curve."""
    if as_csv and (as_json or outcome is not None or trial is not None):
        raise typer.BadParameter("--csv is all trials: it stands alone")
    if trial is not None and outcome is not None:
        raise typer.BadParameter("--outcome chooses among all trials; name none with it")
    with connected(server, data_dir, as_json=as_json) as client:
        if as_csv:
            typer.echo(client.trials_csv(study_id), nl=False)
        elif trial is not None:
            _show(client, study_id, trial, as_json=as_json)
        else:
            _list(client, study_id, outcome, as_json=as_json)


def log(
    study_id: StudyArgument,
    trial: TrialArgument,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the trial has ended.")
    ] = False,
    server: ServerOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print what the worker of a trial wrote, in its last attempt."""
    with connected(server, data_dir, as_json=as_json) as client:
        pieces = client.follow_log(study_id, trial) if follow else [client.log(study_id, trial)]
        for text in pieces:
            if as_json:
                print_json({"log": text})
            else:
                typer.echo(text, nl=False)


def measure(
    study_id: StudyArgument,
    trial: TrialArgument,
    server: ServerOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure a trial's throughput again, alone, and wait for it. Ctrl-C only ends the waiting."""
    waiting = f"trial {trial} is measured when its device's turn comes"
    with connected(server, data_dir, as_json=as_json) as client, spinner(waiting, quiet=as_json):
        found = client.measure(study_id, trial)
    if as_json:
        print_json(found)
    else:
        typer.echo(
            f"trial {trial}: {shown(found.samples_per_second, 'throughput')} samples/s, "
            f"{found.ratio:.2f} of the dense twin's, on {found.device}"
        )


def _list(client: Client, study_id: str, outcome: str | None, *, as_json: bool) -> None:
    found = list(client.trials(study_id, outcome=outcome))
    if as_json:
        print_json([trial.model_dump(mode="json") for trial in found])
    elif found:
        Console().print(trials_table(found, client.front(study_id).objectives))
    else:
        typer.echo("no trials")


def _show(client: Client, study_id: str, number: int, *, as_json: bool) -> None:
    found, curve = client.trial(study_id, number), client.metrics(study_id, number)
    if as_json:
        epochs = [epoch.model_dump(mode="json") for epoch in curve]
        print_json({**found.model_dump(mode="json"), "metrics": epochs})
        return
    console = Console()
    console.print(trial_table(found))
    if curve:
        console.print(curve_table(curve))
