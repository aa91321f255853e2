"""`compress`: from a trained network to smaller ones, and their files, in one command."""

import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from search.documents.datasets import DatasetFacts
from search.documents.objectives import USUAL_OBJECTIVES
from service.api.fronts.schemas import FrontDocument
from service.api.models.schemas import ModelDetail, NetworkDetail
from service.api.studies.schemas import StudyDocument
from service.commands.connection import (
    UNFINISHED,
    Asked,
    asking,
    complain,
    is_terminal,
    print_json,
)
from service.commands.given.option_names import by_option
from service.commands.given.quantities import document_or_name, limits_of
from service.commands.models import (
    UPLOAD_OPTIONS,
    EveryStepOption,
    NonlinearityOption,
    SequenceLengthOption,
)
from service.commands.networks import NetworkWishes, compress_network
from service.commands.results import Fetched, end_if_lost, front_files
from service.commands.shown.bars import transfer_bar
from service.commands.shown.tables import shown
from service.commands.studies import follow_to_the_end, links_of

_Checkpoint = typer.Argument(
    metavar="CHECKPOINT",
    exists=True,
    dir_okay=False,
    readable=True,
    help="A .safetensors: the state dict of plain torch layers, or a trial's checkpoint; or the "
    ".onnx of any network.",
)


_OPTIONS: Mapping[str, str] = {
    **UPLOAD_OPTIONS,
    "file": "CHECKPOINT",
    "task": "--task",
    "limits": "--limit",
    "parametrizations": "--parametrization",
    "budget.trials": "--trials",
    "budget.epochs": "--epochs",
    "compress.layers": "--layers",
    "compress.distillation": "--distill",
    "space.bits": "--bits",
    "name": "--name",
}
"""By part of an upload or of a study's document, the option that says it."""
_ADVICE: Mapping[str, str] = {
    'unequal_lengths: "pad"': "`reflectory datasets upload --pad`, and then --task",
    'missing: "mean"': "`reflectory datasets upload --fill`, and then --task",
}
_SEEN = (
    "the study's validation samples were trained on, so that qualities are too good, the "
    "original's most of all; send samples that the network has not seen"
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
        str | None,
        typer.Option(
            metavar="NAME|JSON",
            help="What the network of a .safetensors was trained for: a task's name or document.",
        ),
    ] = None,
    parametrization: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND", help="A parametrization to try, repeatable; default: several."
        ),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=NUMBER",
            help="A hard limit, repeatable, such as parameters=20000, bytes=300KB, latency=2ms "
            "(of 99 calls in 100), or of an .onnx agreement=99%.",
        ),
    ] = None,
    trials: Annotated[
        int | None, typer.Option(min=1, help="How many trials, the network itself among them.")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="How long each is trained on, at most.")
    ] = None,
    layers: Annotated[
        Layers | None,
        typer.Option(help="Counts that all layers share, the default, or for each its own."),
    ] = None,
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
    data: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            readable=True,
            metavar="FILE",
            help="In place of --task: a data set to train on, as `datasets upload` takes it; of an "
            ".onnx: a .npz of arrays for its inputs, samples first.",
        ),
    ] = None,
    objective: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Of an .onnx, repeatable: what is to be low beside the loss; default: bytes.",
        ),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|JSON",
            help="Of an .onnx: how answers are compared, such as kl or agreement.",
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(metavar="ARRAY", help="Of an .onnx: the array with each sample's class."),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="NAME=ARRAY",
            help="Of an .onnx, repeatable: the array of an input that goes by another name.",
        ),
    ] = None,
    fixed: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=NUMBER",
            help="Of an .onnx, repeatable: an input that becomes a constant, such as sr=16000.",
        ),
    ] = None,
    zeros: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Of an .onnx, repeatable: an input that is fed zeros."),
    ] = None,
    outputs: Annotated[
        list[str] | None,
        typer.Option(
            "--output",
            metavar="NAME",
            help="Of an .onnx, repeatable: an output that is compared; default: all.",
        ),
    ] = None,
    each: Annotated[
        bool, typer.Option("--each", help="Of an .onnx: samples are fed one by one as they are.")
    ] = False,
    fine_tune: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="EPOCHS",
            help="Of an .onnx: how long the front's files are trained further by the original's "
            "answers, once the search is over; default: not at all.",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Of the study; by default that of the file.")
    ] = None,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Submit the study, and download nothing.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the files, by default compressed-STUDY; of an .onnx the file to "
            "write, by default NAME-trial-N.onnx.",
        ),
    ] = None,
) -> None:
    """Compress a trained network: upload it, search, and download the front's files.

    The .onnx of any network comes with data for its inputs, and is not trained: of the front's
    files one is downloaded, by a rule that is printed. Ctrl-C leaves the study running:
    `reflectory watch` shows it again, `reflectory download` has its files, and `reflectory cancel`
    ends it. A file that was uploaded before is not stored again. With --json the study's events are
    printed, and last the study, the model and the files.
    """
    of_networks = {
        "--objective": objective,
        "--metric": metric,
        "--labels": labels,
        "--input": inputs,
        "--fixed": fixed,
        "--zeros": zeros,
        "--output": outputs,
        "--each": each,
        "--fine-tune": fine_tune,
    }
    of_checkpoints = {
        "--task": task,
        "--parametrization": parametrization,
        "--epochs": epochs,
        "--layers": layers,
        "--bits": bits,
        "--distill": distill,
        "--nonlinearity": nonlinearity,
        "--every-step": every_step,
        "--sequence-length": sequence_length,
    }
    if checkpoint.suffix.lower() == ".onnx":
        _refuse_options(of_checkpoints, "a .safetensors", checkpoint)
        if data is None:
            raise typer.BadParameter("missing; an .onnx is compressed on data", param_hint="--data")
        wishes = NetworkWishes(
            data=data,
            limits=limit or (),
            objectives=objective or (),
            inputs=inputs or (),
            outputs=outputs or (),
            fine_tune=fine_tune,
            fixed=fixed or (),
            zeros=zeros or (),
            each=each,
            metric=metric,
            labels=labels,
            trials=trials,
            name=name,
        )
        compress_network(asked, checkpoint, wishes, out=out, waits=not no_wait)
        return
    _refuse_options(of_networks, "an .onnx", checkpoint)
    if (task is None) == (data is None):
        raise typer.BadParameter(
            "name the task, or a file of data by --data; allowed is one of them",
            param_hint="--task",
        )
    if out is not None and out.is_file():
        raise typer.BadParameter(f"{out} is a file; allowed is a folder", param_hint="--out")
    document_of_task: Mapping[str, Any] = (
        {} if task is None else document_or_name(task, option="--task")
    )
    budget = {"trials": trials, "epochs": epochs}
    document: dict[str, Any] = {
        "name": name or f"{checkpoint.stem}, compressed",
        "compress": {"layers": (layers or Layers.SHARED).value, "distillation": distill},
        "limits": limits_of(limit or ()),
        **({"parametrizations": parametrization} if parametrization else {}),
        **({"space": {"bits": {"options": list(dict.fromkeys(bits))}}} if bits else {}),
        "budget": {name: value for name, value in budget.items() if value is not None},
    }
    client, quiet = asked.client, asked.as_json
    if data is not None:
        document_of_task = {"kind": "dataset", "id": _uploaded(asked, data)}
    with (
        by_option(_OPTIONS, as_json=quiet),
        transfer_bar(checkpoint.name, quiet=quiet, afterwards="the server reads it") as told,
    ):
        model = client.upload_model(
            checkpoint,
            nonlinearity=nonlinearity,
            output_steps="every" if every_step else None,
            sequence_length=sequence_length,
            told=told,
        )
    document["task"] = _laid_out(document_of_task, model)
    document["compress"] |= {"model": model.id}
    with by_option(_OPTIONS, as_json=quiet):
        study = client.submit(document)
    if no_wait:
        begun = {"study": study.id, "model": model.id, "files": list[str]()}
        asked.show(begun, links_of(client, study))
        return
    _finish(asked, study, model, out)


def _uploaded(asked: Asked, data: Path) -> str:
    """Upload a data set; its id. Where it has no parts, say what that means for the results."""
    with (
        by_option({"file": "--data"}, as_json=asked.as_json, advice=_ADVICE),
        transfer_bar(data.name, quiet=asked.as_json, afterwards="the server reads it") as told,
    ):
        dataset = asked.client.upload_dataset(data, told=told)
    facts = dataset.facts
    if isinstance(facts, DatasetFacts) and "validation" not in facts.samples:
        # The study draws a validation part out of these samples.
        if not asked.as_json and is_terminal() and sys.stdin.isatty():
            if typer.confirm("Was the network trained on samples of this file?"):
                complain(_SEEN)
        elif not asked.as_json:
            complain(
                f"{data.name} has no validation part. If it holds what was trained on: {_SEEN}"
            )
    return dataset.id


def _finish(
    asked: Asked, study: StudyDocument, model: ModelDetail | NetworkDetail, out: Path | None
) -> None:
    """Follow a study to its end, and download its front into a folder."""
    client, quiet = asked.client, asked.as_json
    if not quiet:
        typer.echo(links_of(client, study))
    follow_to_the_end(client, study, as_json=quiet)
    folder = Path(f"compressed-{study.id}") if out is None else out
    fetched = front_files(client, study.id, folder, quiet=quiet)
    front = client.front(study.id)
    reason = client.study(study.id).state_reason
    _tell(study, model, front, fetched, as_json=quiet)
    end_if_lost(fetched)
    _end_if_nothing_else(front, reason)


def _refuse_options(given: Mapping[str, object], kind: str, file: Path) -> None:
    """Refuse options that say something of another kind of file.

    Raises:
        typer.BadParameter: one was given.
    """
    for option, value in given.items():
        if value:
            raise typer.BadParameter(
                f"goes with {kind}; the file is {file.name}", param_hint=option
            )


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


def _tell(
    study: StudyDocument,
    model: ModelDetail | NetworkDetail,
    front: FrontDocument,
    fetched: Fetched,
    *,
    as_json: bool,
) -> None:
    if as_json:
        files = [str(file) for file in fetched.files]
        lacking = {"lost": fetched.lost, "missing": fetched.missing}
        print_json({"study": study.id, "model": model.id, "files": files, **lacking})
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
    for file in fetched.files:
        console.print(str(file), markup=False)
