"""`compress` of an ONNX file: upload it with its data, search, and download the file to take."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from service.api.fronts.schemas import FrontDocument
from service.api.models.schemas import ModelDetail, NetworkDetail
from service.api.studies.schemas import StudyDocument
from service.client.networks import ChosenFile, ReportOfFile
from service.commands.connection import UNFINISHED, Asked, complain, print_json
from service.commands.given.option_names import by_option
from service.commands.given.quantities import (
    document_or_name,
    limits_of,
    numbers_of,
    pairs_of,
)
from service.commands.shown.bars import transfer_bar
from service.commands.shown.network_tables import network_front_table
from service.commands.studies import end_of, links_of, watched_to_the_end

_OPTIONS: Mapping[str, str] = {
    "task.inputs": "--input",
    "task.outputs": "--output",
    "task.fixed": "--fixed",
    "task.zeros": "--zeros",
    "task.labels": "--labels",
    "task.compare_by": "--metric",
    "task.each": "--each",
    "task.fine_tune": "--fine-tune",
    "task.data": "--data",
    "task.model": "CHECKPOINT",
    "budget.trials": "--trials",
    "limits": "--limit",
    "objectives": "--objective",
    "name": "--name",
}
"""By part of a study's document, the option that says it."""


@dataclass(frozen=True, kw_only=True)
class NetworkWishes:
    """What the command line says of a network and of its study."""

    data: Path
    """A `.npz` of arrays for its inputs."""
    limits: Sequence[str]
    objectives: Sequence[str]
    inputs: Sequence[str]
    outputs: Sequence[str]
    fixed: Sequence[str]
    zeros: Sequence[str]
    each: bool
    fine_tune: int | None
    """Epochs that the front's files are trained further."""
    metric: str | None
    labels: str | None
    trials: int | None
    name: str | None

    def document(self, file: Path) -> dict[str, Any]:
        """The study's document, but for the ids of the two uploads.

        Raises:
            typer.BadParameter: an option has no such value.
        """
        task: dict[str, Any] = {
            "inputs": pairs_of(self.inputs, option="--input", example="input=frames"),
            "fixed": numbers_of(self.fixed, option="--fixed", example="sr=16000"),
            "zeros": list(self.zeros),
            "outputs": list(self.outputs),
            "labels": self.labels,
            "each": self.each,
        }
        if self.fine_tune is not None:
            task["fine_tune"] = {"epochs": self.fine_tune}
        if self.metric is not None:
            task["compare_by"] = document_or_name(self.metric, option="--metric")
        document: dict[str, Any] = {
            "name": self.name or f"{file.stem}, compressed",
            "task": {name: value for name, value in task.items() if value},
            "limits": limits_of(self.limits),
        }
        if self.objectives:
            document["objectives"] = ["quality", *self.objectives]
        if self.trials is not None:
            document["budget"] = {"trials": self.trials}
        return document


def compress_network(
    asked: Asked, file: Path, wishes: NetworkWishes, *, out: Path | None, waits: bool
) -> None:
    """Compress an ONNX file; `out` is the file to write, or a folder that is there."""
    document = wishes.document(file)
    model, data = _uploaded(asked, file, wishes.data)
    document["task"] |= {"kind": "model_outputs", "model": model.id, "data": data}
    with by_option(_OPTIONS, as_json=asked.as_json):
        study = asked.client.submit(document)
    begun = {"study": study.id, "model": model.id, "data": data}
    if not waits:
        asked.show({**begun, "files": []}, links_of(asked.client, study))
        return
    if not asked.as_json:
        typer.echo(links_of(asked.client, study))
    ended = watched_to_the_end(asked.client, study, as_json=asked.as_json)
    front = asked.client.front(study.id)
    reports = asked.client.network_reports(study.id, front)
    chosen = asked.client.choose_file(study.id, reports)
    if not asked.as_json:
        if front.points:
            Console().print(network_front_table(front, reports))
        typer.echo(end_of(ended))
    if chosen is None:
        complain(_nothing(ended, front))
        raise typer.Exit(UNFINISHED)
    place = _place(file, out, chosen)
    with transfer_bar(place.name, quiet=asked.as_json) as told:
        asked.client.onnx(study.id, chosen.trial, place, told=told)
    if asked.as_json:
        print_json({**begun, "trial": chosen.trial, "rule": chosen.rule, "files": [str(place)]})
    else:
        _tell(chosen, reports.get(chosen.trial), place)
    if ended.state != "finished":
        raise typer.Exit(UNFINISHED)


def _uploaded(asked: Asked, file: Path, data: Path) -> tuple[ModelDetail | NetworkDetail, str]:
    """Upload both; the model, and the id of the data. What was uploaded before is not again."""
    reads = "the server reads it"
    with (
        by_option({"file": "CHECKPOINT"}, as_json=asked.as_json),
        transfer_bar(file.name, quiet=asked.as_json, afterwards=reads) as told,
    ):
        model = asked.client.upload_model(file, told=told)
    with (
        by_option({"file": "--data"}, as_json=asked.as_json),
        transfer_bar(data.name, quiet=asked.as_json, afterwards=reads) as told,
    ):
        return model, asked.client.upload_dataset(data, holds="arrays", told=told).id


def _nothing(ended: StudyDocument, front: FrontDocument) -> str:
    found = "nothing but the original" if front.points else "no trial"
    return f"{found} is on the front" + (f": {ended.state_reason}" if ended.state_reason else "")


def _place(file: Path, out: Path | None, chosen: ChosenFile) -> Path:
    """Where the file is written."""
    name = f"{file.stem}-trial-{chosen.trial}.onnx"
    if out is None:
        return Path(name)
    if out.is_dir() or out.suffix != file.suffix:
        out.mkdir(parents=True, exist_ok=True)
        return out / name
    out.parent.mkdir(parents=True, exist_ok=True)
    return out


def _tell(chosen: ChosenFile, report: ReportOfFile | None, place: Path) -> None:
    typer.echo(f"Taken: trial {chosen.trial}, {chosen.rule}")
    for warning in () if report is None else report.warnings:
        typer.echo(f"Note: {warning}")
    Console(soft_wrap=True, highlight=False).print(str(place), markup=False)
