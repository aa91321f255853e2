"""`front`, `importance`, `report` and `download`: what studies found; `catalog`: what they name."""

import tempfile
import webbrowser
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from shutil import get_terminal_size
from typing import Annotated, Literal

import typer

from service.api.fronts.schemas import PointDocument
from service.client import Client
from service.client.files import unpack
from service.commands.connection import UNFINISHED, Asked, asking, complain
from service.commands.given.arguments import AnyTrialArgument, StudyArgument
from service.commands.shown.bars import transfer_bar
from service.commands.shown.network_tables import network_report_tables
from service.commands.shown.plotted import front_plot
from service.commands.shown.tables import catalog_tables, importance_tables
from service.commands.studies import front_shown
from service.data_dir.whole_files import write_whole


@asking
def front(
    asked: Asked,
    study_id: StudyArgument,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    latest: Annotated[
        bool,
        typer.Option("--latest", help="By the newest throughput of each, as `measure` found it."),
    ] = False,
    plot: Annotated[
        bool, typer.Option("--plot", help="Draw it too, quality over the first cost, as text.")
    ] = False,
) -> None:
    """Show the Pareto front of a study, so far or final."""
    if sum((as_csv, asked.as_json, plot)) > 1:
        raise typer.BadParameter("--csv, --json and --plot exclude each other")
    throughput = "latest" if latest else "search"
    if as_csv:
        typer.echo(asked.client.front_csv(study_id, throughput=throughput), nl=False)
        return
    found = asked.client.front(study_id, throughput=throughput)
    asked.show(found, *([] if asked.as_json else [front_shown(asked.client, study_id, found)]))
    if plot:
        trials = asked.client.trials(study_id, outcome="complete")
        typer.echo(f"\n{front_plot(found, trials, width=get_terminal_size().columns)}")


@asking
def importance(asked: Asked, study_id: StudyArgument) -> None:
    """Show what each dimension of the space did to each objective, so far."""
    found = asked.client.importance(study_id)
    asked.show(found, *importance_tables(found))


@asking
def report(
    asked: Asked,
    study_id: StudyArgument,
    trial: AnyTrialArgument = None,
    out: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="File to write; by default study-ID.html."),
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    plain: Annotated[
        bool, typer.Option("--plain", help="Tables alone: no figures, no script, not 5 MB.")
    ] = False,
) -> None:
    """Write a study's report: one HTML page with its figures, that needs nothing else.

    Of one trial of a study that compresses an ONNX network, print the figures of its file and of
    each layer.
    """
    if trial is not None:
        if out is not None or show:
            raise typer.BadParameter("--out and --open are of the whole study; name no trial")
        _report_of_file(asked, study_id, trial)
        return
    page = asked.client.study_report(study_id, plain=plain)
    # The server's own word for the study: what the user wrote names no path.
    file = Path(f"study-{asked.client.study(study_id).id}.html") if out is None else out
    write_whole(file, page, private=False)
    asked.show({"file": str(file)}, str(file))
    if show and not webbrowser.open(file.absolute().as_uri()):
        complain("no browser was found; open the file by hand")


def _report_of_file(asked: Asked, study_id: str, number: int) -> None:
    task = asked.client.study(study_id).spec.get("task", {}).get("kind")
    if task != "model_outputs":
        raise typer.BadParameter(
            f"the task of study {study_id} is {task}; a trial's report is printed with the task "
            f"model_outputs, and `reflectory download {study_id} {number}` has the files of others"
        )
    found = asked.client.network_report(study_id, number)
    asked.show(found, *network_report_tables(number, found))


@asking
def download(
    asked: Asked,
    study_id: StudyArgument,
    trial: AnyTrialArgument = None,
    out: Annotated[
        Path, typer.Option(file_okay=False, help="Folder to write into; made when missing.")
    ] = Path(),
    bundle: Annotated[
        bool, typer.Option("--bundle", help="The whole front as one ZIP file, ID.zip.")
    ] = False,
    onnx: Annotated[
        bool,
        typer.Option("--onnx", help="Only the ONNX file of a trial, trial-N.onnx, of these kinds:"),
    ] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="The network alone, without scaling and labels.")
    ] = False,
    guard: Annotated[bool, typer.Option("--guard", help="Batches may be empty.")] = False,
    form: Annotated[
        Literal["auto", "node", "loop"] | None,
        typer.Option(help="Whole matrices, or products through their factors."),
    ] = None,
    quantization: Annotated[
        Literal["none", "qdq"], typer.Option(help="DequantizeLinear for 8 or 4 bits: qdq.")
    ] = "none",
) -> None:
    """Download the folder of one trial, or of each point on the front.

    Each folder, trial-N, has the checkpoint, ONNX and C files, a model card and examples that run.
    A file that cannot be made is named with the reason. If bytes are damaged or gone on the server,
    the exit code is 1.
    """
    if bundle and trial is not None:
        raise typer.BadParameter("--bundle is the whole front; name no trial with it")
    if onnx:
        if trial is None:
            raise typer.BadParameter("--onnx is the file of one trial; name its number")
        out.mkdir(parents=True, exist_ok=True)
        file = out / f"trial-{trial}.onnx"
        wanted = partial(
            asked.client.onnx, raw=raw, guard=guard, form=form, quantization=quantization
        )
        with transfer_bar(file.name, quiet=asked.as_json) as told:
            wanted(study_id, trial, file, told=told)
        fetched = Fetched([file])
    elif raw or guard or form is not None or quantization != "none":
        raise typer.BadParameter("--raw, --guard, --form and --quantization go with --onnx")
    elif bundle:
        fetched = _bundle(asked.client, study_id, out, quiet=asked.as_json)
    elif trial is not None:
        out.mkdir(parents=True, exist_ok=True)
        fetched = fetch(asked.client, study_id, trial, out, quiet=asked.as_json)
    else:
        fetched = front_files(asked.client, study_id, out, quiet=asked.as_json)
    files = [str(file) for file in fetched.files]
    asked.show({"files": files, "lost": fetched.lost, "missing": fetched.missing}, *files)
    end_if_lost(fetched)


@asking
def catalog(asked: Asked) -> None:
    """Show what a study may name: architectures, tasks, presets, samplers and the rest."""
    found = asked.client.catalog()
    asked.show(found, *catalog_tables(found))


@dataclass(frozen=True)
class Fetched:
    """What was downloaded, and what could not be."""

    files: list[Path] = field(default_factory=list[Path])
    lost: list[str] = field(default_factory=list[str])
    """Sentences on files whose bytes are damaged or gone; each was complained of."""
    missing: list[str] = field(default_factory=list[str])
    """Sentences on files that cannot be had, or were not to be kept; likewise."""

    def miss(self, sentence: str, *, lost: bool, quiet: bool) -> None:
        """Complain of a file that cannot be had, or not any more; if quiet, it is printed later."""
        if not quiet:
            complain(sentence)
        (self.lost if lost else self.missing).append(sentence)

    def add(self, other: "Fetched") -> None:
        """What was fetched besides."""
        self.files.extend(other.files)
        self.lost.extend(other.lost)
        self.missing.extend(other.missing)


def end_if_lost(fetched: Fetched) -> None:
    """End the command as one that did not do all it was asked for, if something was lost.

    Raises:
        typer.Exit: it was.
    """
    if fetched.lost:
        raise typer.Exit(UNFINISHED)


def fetch(
    client: Client, study_id: str, number: int, out: Path, *, quiet: bool = False, counted: str = ""
) -> Fetched:
    """Download a trial's folder into `out/trial-N`.

    What cannot be had is complained of with its reason, and the rest is fetched all the same.
    """
    fetched = Fetched()
    with tempfile.TemporaryDirectory(dir=out, prefix=f".trial-{number}.") as unfinished:
        file = Path(unfinished) / f"trial-{number}.zip"
        with transfer_bar(f"trial-{number}{counted}", quiet=quiet) as told:
            got = client.folder(study_id, number, file, told=told)
        place = f"trial-{number}"
        fetched.files.extend(unpack(file, place, out / place))
    for one in got.missing:
        sentence = f"trial {number} comes without {one.file}: {one.reason}"
        fetched.miss(sentence, lost=one.lost, quiet=quiet)
    return fetched


def _bundle(client: Client, study_id: str, out: Path, *, quiet: bool) -> Fetched:
    # The server's own word for the study: what the user wrote names no path.
    file = f"{client.study(study_id).id}.zip"
    out.mkdir(parents=True, exist_ok=True)
    with transfer_bar(file, quiet=quiet) as told:
        got = client.bundle(study_id, out / file, told=told)
    fetched = Fetched([got.path])
    for one in got.missing:
        sentence = f"{file} comes without {one.file}: {one.reason}"
        fetched.miss(sentence, lost=one.lost, quiet=quiet)
    return fetched


def front_files(client: Client, study_id: str, out: Path, *, quiet: bool) -> Fetched:
    """Download the front as CSV and the folder of each of its points."""
    found = client.front(study_id).points
    points = [*filter(_is_kept, found)]
    out.mkdir(parents=True, exist_ok=True)
    fetched = Fetched([out / "front.csv"])
    for point in found:
        if not _is_kept(point):
            reason = "the study's retention did not keep it"
            sentence = f"trial {point.trial} has no checkpoint: {reason}"
            fetched.miss(sentence, lost=False, quiet=quiet)
    write_whole(fetched.files[0], client.front_csv(study_id), private=False)
    for place, point in enumerate(points, start=1):
        counted = f" ({place} of {len(points)})"
        fetched.add(fetch(client, study_id, point.trial, out, quiet=quiet, counted=counted))
    return fetched


def _is_kept(point: PointDocument) -> bool:
    """Whether there are files of it; a network of others has a folder without a checkpoint."""
    return (point.links["folder"] or point.links["checkpoint"]) is not None
