"""`pause`, `resume`, `budget`, `priority`, `enqueue` and `delete`."""

from typing import Annotated

import typer
from pydantic import TypeAdapter, ValidationError

from service.api.studies.schemas import StudyDocument
from service.commands.arguments import StudyArgument
from service.commands.connection import Asked, asking

_SCALAR: TypeAdapter[bool | int | float | str | None] = TypeAdapter(bool | int | float | str | None)


@asking
def pause(asked: Asked, study_id: StudyArgument) -> None:
    """Pause a study. Running trials save a checkpoint and stop; none starts until it resumes."""
    _show(asked, asked.client.pause(study_id))


@asking
def resume(asked: Asked, study_id: StudyArgument) -> None:
    """Resume a paused study where it stopped."""
    _show(asked, asked.client.resume(study_id))


@asking
def budget(
    asked: Asked,
    study_id: StudyArgument,
    trials: Annotated[int | None, typer.Option(help="Trials in all.")] = None,
    total_epochs: Annotated[int | None, typer.Option(help="Epochs over all trials.")] = None,
    wall_seconds: Annotated[float | None, typer.Option(help="Seconds in state running.")] = None,
    device_hours: Annotated[float | None, typer.Option(help="Slot shares times hours.")] = None,
) -> None:
    """Give a study another budget; a finished one runs on."""
    named = {
        "trials": trials,
        "total_epochs": total_epochs,
        "wall_seconds": wall_seconds,
        "device_hours": device_hours,
    }
    given = {name: value for name, value in named.items() if value is not None}
    if not given:
        raise typer.BadParameter("name at least one budget, such as --trials 50")
    _show(asked, asked.client.change_budget(study_id, **given))


@asking
def priority(
    asked: Asked,
    study_id: StudyArgument,
    number: Annotated[
        int,
        typer.Argument(
            metavar="NUMBER",
            min=-100,
            max=100,
            help="The highest comes first; after -- if below 0.",
        ),
    ],
) -> None:
    """Let a study come before others, or after them, where slots become free."""
    _show(asked, asked.client.change_priority(study_id, number))


@asking
def enqueue(
    asked: Asked,
    study_id: StudyArgument,
    architecture: Annotated[
        str | None, typer.Option(help="One of the study's, for a configuration of your own.")
    ] = None,
    parametrization: Annotated[str | None, typer.Option(help="Likewise.")] = None,
    given: Annotated[
        list[str] | None,
        typer.Option(
            "--param",
            "-p",
            metavar="NAME=VALUE",
            help="A hyperparameter, such as -p rnn.hidden_size=32; those left out are drawn.",
        ),
    ] = None,
    continues: Annotated[
        int | None,
        typer.Option(metavar="TRIAL", help="Go on from this trial's checkpoint instead."),
    ] = None,
) -> None:
    """Try a configuration of your own next, or go on from a trial; a finished study runs on."""
    hyperparameters = dict(map(_assignment, given or ()))
    if continues is not None:
        if architecture or parametrization or hyperparameters:
            raise typer.BadParameter("--continues takes the configuration over; name no other")
        number = asked.client.continue_trial(study_id, continues)
    elif architecture is None or parametrization is None:
        raise typer.BadParameter("name --architecture and --parametrization, or --continues")
    else:
        number = asked.client.enqueue(study_id, architecture, parametrization, hyperparameters)
    asked.show({"number": number}, f"trial {number} of study {study_id} is tried next")


@asking
def delete(asked: Asked, study_id: StudyArgument) -> None:
    """Delete a study that has ended, with all of its trials and files."""
    asked.client.delete(study_id)
    asked.show({"deleted": study_id}, f"study {study_id} is deleted")


def _assignment(text: str) -> tuple[str, bool | int | float | str | None]:
    """A hyperparameter by name: a JSON scalar, or else plain text."""
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise typer.BadParameter(f"{text!r} is no NAME=VALUE, such as rnn.hidden_size=32")
    try:
        return name, _SCALAR.validate_json(value)
    except ValidationError:
        return name, value


def _show(asked: Asked, study: StudyDocument) -> None:
    reason = f" ({study.state_reason})" if study.state_reason else ""
    asked.show(study, f"study {study.id} is {study.state}{reason}")
