"""`trials`, `log` and `measure`: what was tried, what its workers wrote, and how fast it is."""

from typing import Annotated, Literal

import typer

from service.commands.connection import Asked, asking, print_json
from service.commands.given.arguments import AnyTrialArgument, StudyArgument, TrialArgument
from service.commands.shown.bars import spinner
from service.commands.shown.network_tables import NETWORK
from service.commands.shown.tables import shown
from service.commands.shown.trial_tables import curve_table, trial_table, trials_table

_Outcome = Literal[
    "queued", "running", "paused", "complete", "stopped", "infeasible", "failed", "cancelled"
]


@asking
def trials(
    asked: Asked,
    study_id: StudyArgument,
    trial: AnyTrialArgument = None,
    outcome: Annotated[
        _Outcome | None, typer.Option(help="Only trials that stand or ended so.")
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV: all of them.")] = False,
) -> None:
    """List the trials of a study with their outcomes and reasons, or show one with its curve."""
    if as_csv and (asked.as_json or outcome is not None or trial is not None):
        raise typer.BadParameter("--csv is all trials: it stands alone")
    if trial is not None and outcome is not None:
        raise typer.BadParameter("--outcome chooses among all trials; name none with it")
    if as_csv:
        typer.echo(asked.client.trials_csv(study_id), nl=False)
    elif trial is not None:
        _show(asked, study_id, trial)
    else:
        found = list(asked.client.trials(study_id, outcome=outcome))
        asked.show_all(
            found,
            lambda trials: trials_table(trials, asked.client.front(study_id).objectives),
            nothing="no trials",
        )


@asking
def log(
    asked: Asked,
    study_id: StudyArgument,
    trial: TrialArgument,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the trial has ended.")
    ] = False,
) -> None:
    """Print what the worker of a trial wrote, in its last attempt."""
    client = asked.client
    pieces = client.follow_log(study_id, trial) if follow else [client.log(study_id, trial)]
    for text in pieces:
        if asked.as_json:
            print_json({"log": text})
        else:
            typer.echo(text, nl=False)


@asking
def measure(asked: Asked, study_id: StudyArgument, trial: TrialArgument) -> None:
    """Measure a trial's throughput again, alone, and wait for it. Ctrl-C only ends the waiting."""
    waiting = f"trial {trial} is measured when its device's turn comes"
    with spinner(waiting, quiet=asked.as_json):
        found = asked.client.measure(study_id, trial)
    asked.show(
        found,
        f"trial {trial}: {shown(found.samples_per_second, 'throughput')} samples/s, "
        f"{found.ratio:.2f} of the dense baseline's, on {found.device}",
    )


def _show(asked: Asked, study_id: str, number: int) -> None:
    found, curve = asked.client.trial(study_id, number), asked.client.metrics(study_id, number)
    trains = found.architecture != NETWORK
    epochs = [epoch.model_dump(mode="json") for epoch in curve]
    asked.show(
        {**found.model_dump(mode="json"), "metrics": epochs},
        trial_table(found),
        *([curve_table(curve)] if curve and trains else []),
    )
