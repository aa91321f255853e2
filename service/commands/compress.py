"""`compress`: from a trained network to smaller ones, and their files, in one command."""

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from search.documents.objectives import USUAL_OBJECTIVES
from service.api.fronts.schemas import FrontDocument
from service.api.models.schemas import ModelDetail, NetworkDetail
from service.api.studies.schemas import StudyDocument
from service.commands.connection import UNFINISHED, Asked, asking, complain, print_json
from service.commands.models import EveryStepOption, NonlinearityOption, SequenceLengthOption
from service.commands.results import end_if_lost, front_files
from service.commands.shown.bars import transfer_bar
from service.commands.shown.tables import shown
from service.commands.studies import follow_to_the_end, links_of

_Checkpoint = typer.Argument(
    metavar="CHECKPOINT",
    exists=True,
    dir_okay=False,
    readable=True,
    help="A .safetensors: the state dict of plain torch layers, or a trial's checkpoint.",
)


class Layers(StrEnum):
    """Whether the counts of a parametrization are drawn for all layers alike."""

    SHARED = "shared"
    EACH = "each"


@asking
def compress(
    asked: Asked,
    checkpoint: Annotated[Path, _Checkpoint],
    task: Annotated[
        str,
        typer.Option(
            metavar="NAME|JSON", help="What the network was trained for: a task's name or document."
        ),
    ],
    parametrization: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND", help="A parametrization to try, repeatable; default: several."
        ),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=NUMBER", help="A hard limit, such as parameters=20000."),
    ] = None,
    trials: Annotated[
        int | None, typer.Option(min=1, help="How many trials, the network itself among them.")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="How long each is trained on, at most.")
    ] = None,
    layers: Annotated[
        Layers, typer.Option(help="Counts that all layers share, or for each layer its own.")
    ] = Layers.SHARED,
    bits: Annotated[
        list[int] | None,
        typer.Option(
            metavar="32|8|4",
            help="Bits of the stored numbers, repeatable: of several the search draws.",
        ),
    ] = None,
    distill: Annotated[
        bool, typer.Option("--distill", help="Learn from the network's own answers too.")
    ] = False,
    nonlinearity: NonlinearityOption = None,
    every_step: EveryStepOption = False,
    sequence_length: SequenceLengthOption = None,
    out: Annotated[
        Path | None,
        typer.Option(file_okay=False, help="Folder for the files; by default compressed-STUDY."),
    ] = None,
) -> None:
    """Compress a trained network: upload it, search, and download the front's files.

    Ctrl-C leaves the study running: `reflectory watch` shows it again, `reflectory download` has
    its files, and `reflectory cancel` ends it. A file that was uploaded before is not stored again.
    With --json the study's events are printed, and last the study, the model and the files.
    """
    limits, document_of_task = _limits(limit or ()), _task(task)
    client, quiet = asked.client, asked.as_json
    with transfer_bar(checkpoint.name, quiet=quiet, afterwards="the server reads it") as told:
        model = client.upload_model(
            checkpoint,
            nonlinearity=nonlinearity,
            output_steps="every" if every_step else None,
            sequence_length=sequence_length,
            told=told,
        )
    budget = {"trials": trials, "epochs": epochs}
    document = {
        "name": f"{checkpoint.stem}, compressed",
        "task": _laid_out(document_of_task, model),
        "compress": {"model": model.id, "layers": layers.value, "distillation": distill},
        "limits": limits,
        **({"parametrizations": parametrization} if parametrization else {}),
        **({"space": {"bits": {"options": list(dict.fromkeys(bits))}}} if bits else {}),
        "budget": {name: value for name, value in budget.items() if value is not None},
    }
    study = client.submit(document)
    if not quiet:
        typer.echo(links_of(client, study))
    follow_to_the_end(client, study, as_json=quiet)
    folder = Path(f"compressed-{study.id}") if out is None else out
    fetched = front_files(client, study.id, folder, quiet=quiet)
    front = client.front(study.id)
    reason = client.study(study.id).state_reason
    _tell(study, model, front, fetched.files, as_json=quiet)
    end_if_lost(fetched)
    _end_if_nothing_else(front, reason)


def _task(text: str) -> Mapping[str, Any]:
    """A task's document, or that of its name.

    Raises:
        typer.BadParameter: it begins as a document and is none.
    """
    if not text.lstrip().startswith("{"):
        return {"kind": text}
    try:
        return json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is no JSON: {error}", param_hint="--task") from error


def _laid_out(task: Mapping[str, Any], model: ModelDetail | NetworkDetail) -> Mapping[str, Any]:
    """A task of which nothing but the name is said, laid out as the model reads it."""
    fits = model.fits if isinstance(model, ModelDetail) else ()
    layouts = [fit.layout for fit in fits if task == {"kind": fit.task} and fit.layout is not None]
    return {**task, "layout": layouts[0]} if layouts else task


def _end_if_nothing_else(front: FrontDocument, reason: str | None) -> None:
    if all(front.original and point.trial == front.original.trial for point in front.points):
        found = "nothing but the original" if front.points else "no trial"
        complain(f"{found} is on the front{f': {reason}' if reason else ''}")
        raise typer.Exit(UNFINISHED)


def _limits(texts: Sequence[str]) -> Mapping[str, int | float]:
    """`NAME=NUMBER` by name; which names there are the server knows.

    Raises:
        typer.BadParameter: a value is no number.
    """
    found: dict[str, int | float] = {}
    for text in texts:
        name, _, value = text.partition("=")
        try:
            number = float(value)
            # Whole numbers stay such, for what is counted is made of nothing else.
            found[name] = int(number) if number.is_integer() else number
        except ValueError as error:
            raise typer.BadParameter(
                f"{text!r} names no number; allowed is such as parameters=20000",
                param_hint="--limit",
            ) from error
    return found


def _tell(
    study: StudyDocument,
    model: ModelDetail | NetworkDetail,
    front: FrontDocument,
    files: Sequence[Path],
    *,
    as_json: bool,
) -> None:
    if as_json:
        print_json({"study": study.id, "model": model.id, "files": [str(file) for file in files]})
        return
    original = front.original
    if original is not None:
        values = {name: shown(original.values.get(name), name) for name in USUAL_OBJECTIVES}
        typer.echo(
            f"The original, trial {original.trial}: {front.objectives[0].metric} "
            f"{values['quality']}, {values['parameters']} parameters, {values['throughput']} "
            "samples/s"
        )
    if slower := [point for point in front.points if point.slower]:
        dense = any(point.links.get("dense") is not None for point in slower)
        complain(
            "points marked slower have fewer parameters than their dense baselines and run below "
            "them on the measuring device"
            + (": there their .dense.safetensors is the faster form" if dense else "")
        )
    console = Console(soft_wrap=True, highlight=False)
    for file in files:
        console.print(str(file), markup=False)
