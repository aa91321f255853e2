"""`pause`, `resume`, `budget`, `priority`, `label`, `enqueue`, `cancel` and `delete`."""

from typing import Annotated

import typer
from pydantic import TypeAdapter, ValidationError

from service.api.studies.schemas import StudyDocument
from service.commands.connection import REFUSED, UNFINISHED, Asked, asking, fail
from service.commands.given.arguments import StudyArgument
from service.commands.given.confirmation import YesOption, confirm
from service.commands.given.references import SHORT, described
from service.commands.shown.tables import in_words

_SCALAR: TypeAdapter[bool | int | float | str | None] = TypeAdapter(bool | int | float | str | None)


@asking
def pause(asked: Asked, study_id: StudyArgument) -> None:
    """Pause a study. Running trials save a checkpoint and stop; none starts until it resumes."""
    _show_if_changed(asked, asked.client.pause(study_id), "paused", "studies that go on")


@asking
def resume(asked: Asked, study_id: StudyArgument) -> None:
    """Resume a paused study where it stopped."""
    _show_if_changed(asked, asked.client.resume(study_id), "resumed", "studies that are paused")


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
def label(
    asked: Asked,
    study_id: StudyArgument,
    name: Annotated[str | None, typer.Option(help="What it is called from now on.")] = None,
    tags: Annotated[
        list[str] | None,
        typer.Option("--tag", help="One of its tags, repeatable: they replace those it has."),
    ] = None,
    no_tags: Annotated[bool, typer.Option("--no-tags", help="Take all tags away.")] = False,
    notes: Annotated[
        str | None, typer.Option(help="Plain text; an empty one takes notes away.")
    ] = None,
) -> None:
    """Give a study another name, tags to find it by, or notes; what is not named stays."""
    if tags and no_tags:
        raise typer.BadParameter("--tag and --no-tags exclude each other")
    chosen = [] if no_tags else tags
    if name is None and chosen is None and notes is None:
        raise typer.BadParameter("name at least one of --name, --tag, --no-tags and --notes")
    study = asked.client.change_labels(study_id, name=name, tags=chosen, notes=notes)
    tagged = f", tagged {', '.join(study.tags)}" if study.tags else ""
    asked.show(study, f"study {described(study)}{tagged}")


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
def cancel(asked: Asked, study_id: StudyArgument, yes: YesOption = False) -> None:
    """Cancel a study: what waits and what runs ends, what is complete stays."""
    study = asked.client.study(study_id)
    if study.ended:
        _show_if_changed(asked, study, "cancelled", "studies that go on")
        return
    trials = study.progress.trials
    question = (
        f"Cancel study {described(study)} with {trials.running} running and "
        f"{trials.queued + trials.paused} waiting trials"
    )
    confirm(question, yes=yes, as_json=asked.as_json, undone="The study goes on.")
    study = asked.client.cancel(study_id)
    stands = study.state if study.ended else "being cancelled"
    asked.show(study, f"study {study.id} is {stands}")


@asking
def delete(asked: Asked, study_id: StudyArgument, yes: YesOption = False) -> None:
    """Delete a study that has ended, with all of its trials and files."""
    study = asked.client.study(study_id)
    if not study.ended:
        fail(
            f"study {described(study)} is {study.state}; allowed are studies that have ended",
            REFUSED,
            as_json=asked.as_json,
            ways=(f"end it first: reflectory cancel {study.id[:SHORT]}",),
        )
    confirm(
        f"Delete study {described(study)} with {_contents(asked, study)}",
        yes=yes,
        as_json=asked.as_json,
        undone="Nothing was deleted.",
    )
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


def _contents(asked: Asked, study: StudyDocument) -> str:
    """What goes with a study, such as `24 trials and 31 MB`."""
    trials = sum(1 for _ in asked.client.trials(study.id))
    counted = f"{trials:,} {'trial' if trials == 1 else 'trials'}"
    return (
        counted if study.stored_bytes is None else f"{counted} and {in_words(study.stored_bytes)}"
    )


def _show(asked: Asked, study: StudyDocument) -> None:
    reason = f" ({study.state_reason})" if study.state_reason else ""
    asked.show(study, f"study {study.id} is {study.state}{reason}")


def _show_if_changed(asked: Asked, study: StudyDocument, done: str, allowed: str) -> None:
    """Show a study after a command, which came to nothing where the study has ended.

    Raises:
        typer.Exit: it came to nothing. The server takes such commands all the same, so that they
            can be repeated.
    """
    if study.ended and study.state != done:
        fail(
            f"study {described(study)} was not {done}, for it is {study.state}; allowed are "
            f"{allowed}",
            UNFINISHED,
            as_json=asked.as_json,
        )
    _show(asked, study)
