"""`demo`: the whole way of a user, from an empty data directory to the best model's files."""

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import IO, Annotated

import typer
from rich.console import Console

from service.api.fronts.schemas import FrontDocument, PointDocument
from service.api.studies.schemas import StudyDocument
from service.api.trials.schemas import TrialDocument
from service.client import Client
from service.commands.connection import UNFINISHED, JsonOption, complain, connected, print_json
from service.commands.results import end_if_lost, fetch
from service.commands.shown.following import LineView, follow, open_view
from service.commands.shown.plotted import front_plot
from service.commands.shown.tables import front_table, shown
from service.commands.studies import links_of, read_spec

_DOCUMENT = Path(__file__).with_name("demo.json")
"""The study where none is named; `deploy/examples/digits.json` is a copy."""
_DENSE = "dense"
_BY_CHANCE = 0.02
"""Accuracies of some hundred samples differ by so much without a reason."""
_CAVEAT = (
    f"Accuracies are of some hundred samples: differences below {_BY_CHANCE} may be chance.\n"
    "Each network reads 64 pixels, one at a time, and has at most 10 epochs to learn it.\n"
    "The search turns to what leads: with more trials, dense networks of 5,000 to 10,000\n"
    "parameters get about as far. Short sequences need no structure: read row by row, a small\n"
    "dense GRU does as well."
)

_STOP_SECONDS = 30.0
_TAIL_LINES = 30


class _ServerFailed(Exception):
    """The server did not start, or did not stop in order."""


def demo(
    spec: Annotated[
        Path | None,
        typer.Argument(
            metavar="SPEC.json", help="The study's document; by default digits, pixel by pixel."
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(file_okay=False, help="Folder for the data and the results.")
    ] = Path("demo-output"),
    as_json: JsonOption = False,
) -> None:
    """Start a server of its own, run a study on it, download the best model, and stop.

    With --json only the study, its lesson and the files are printed, at the end.
    """
    document = read_spec(_DOCUMENT if spec is None else spec)
    folder = out / f"{datetime.now():%Y%m%d-%H%M%S-%f}"
    folder.mkdir(parents=True)
    log = folder / "server.log"
    try:
        with (
            _server(folder / "data", log, quiet=as_json) as url,
            connected(url, None, as_json=as_json) as client,
        ):
            study = client.submit(document)
            if not as_json:
                typer.echo(links_of(client, study))
            with nullcontext(LineView(write=_tell_nobody)) if as_json else open_view(study) as view:
                study = follow(client, study.id, view)
            told, files = _conclude(client, study, folder / "best", quiet=as_json)
    except (_ServerFailed, typer.Exit) as error:
        if isinstance(error, _ServerFailed):
            complain(str(error))
        complain(f"The end of the server's log, {log}:", *_tail(log))
        raise typer.Exit(UNFINISHED) from error
    if as_json:
        print_json({"study": study.id, "lesson": told, "files": [str(file) for file in files]})
        return
    for line in told:
        typer.echo(line)
    if spec is None:
        typer.echo(_CAVEAT)
    typer.echo("The server has stopped. Written:")
    for file in files:
        typer.echo(f"  {file}")
    program = os.path.relpath(Path(sysconfig.get_path("scripts")) / "reflectory")
    typer.echo(f"Look at the study again: {program} serve --data-dir {folder / 'data'}")


def _conclude(
    client: Client, study: StudyDocument, out: Path, *, quiet: bool
) -> tuple[list[str], list[Path]]:
    """Show the front and fetch its best point; gives what one sees, and the files.

    Raises:
        typer.Exit: the study did not finish with a front.
    """
    front = client.front(study.id)
    best = front.best()
    if study.state != "finished" or best is None:
        complain(
            f"study {study.id} is {study.state}: {study.state_reason or 'no trial is complete'}"
        )
        raise typer.Exit(UNFINISHED)
    trials = list(client.trials(study.id, outcome="complete"))
    if not quiet:
        console = Console()
        console.print(front_table(front, hyperparameters=console.width >= 140))
        typer.echo(f"\n{front_plot(front, trials, width=console.width)}\n")
        typer.echo(f"Best {front.objectives[0].metric}: {_told(best)}")
    out.mkdir()
    # What chance explains is known of accuracies alone.
    by_accuracy = front.objectives[0].metric == "accuracy"
    taken = _smallest_as_good(front.points, best) if by_accuracy else best
    fetched = fetch(client, study.id, taken.trial, out, quiet=quiet)
    end_if_lost(fetched)
    why = "the smallest that may be as good as the best" if by_accuracy else "the best"
    lesson = _lesson(front, trials, best) if by_accuracy else ()
    return [*lesson, f"Downloaded: trial {taken.trial}, {why}."], fetched.files


def _smallest_as_good(points: Sequence[PointDocument], best: PointDocument) -> PointDocument:
    """The point of the fewest parameters that differs from the best by no more than chance."""
    least = (best.values["quality"] or 0.0) - _BY_CHANCE
    as_good = [one for one in points if (one.values["quality"] or 0.0) >= least]
    return min(as_good, key=lambda one: one.values["parameters"] or 0, default=points[0])


def _lesson(
    front: FrontDocument, trials: Sequence[TrialDocument], best: PointDocument
) -> Iterator[str]:
    """What the front says of structured networks, and of dense ones of equal units and size."""
    of_trial = {trial.number: trial for trial in trials}
    structured = [point for point in front.ranked() if point.parametrization != _DENSE]
    dense = [trial for trial in trials if trial.parametrization == _DENSE]
    dense.sort(key=lambda trial: trial.values["quality"] or 0.0, reverse=True)
    if not structured:
        yield "No structured network is on the front of this study."
        return
    metric, point = front.objectives[0].metric, _smallest_as_good(structured, best)
    trial, quality = of_trial[point.trial], shown(point.values.get("quality"), "quality")
    parameters = point.values["parameters"] or trial.dense_parameters
    yield (
        f"Trial {point.trial} is a {point.architecture} with {point.parametrization}: {metric} "
        f"{quality} with {parameters:,} parameters."
    )
    yield (
        f"A dense {point.architecture} of as many units has {trial.dense_parameters:,}, which is "
        f"{trial.dense_parameters / parameters:.1f} times as many."
    )
    equal = [one for one in dense if (one.values["parameters"] or 0) <= parameters]
    # One line where the best of all is no larger.
    others = [(" that was tried", dense)] if dense[:1] != equal[:1] else []
    for words, found in ((" with no more parameters", equal), *others):
        if found:
            yield (
                f"The best dense network{words}, trial {found[0].number}, reached "
                f"{shown(found[0].values['quality'], 'quality')} with "
                f"{shown(found[0].values['parameters'], 'parameters')}."
            )
    if point.throughput_ratio is not None:
        yield (
            f"On this machine trial {point.trial} has {point.throughput_ratio:.2f} times the "
            "throughput of its dense baseline."
        )


def _told(point: PointDocument) -> str:
    values = point.values
    return (
        f"{shown(values.get('quality'), 'quality')} on validation, "
        f"{shown(point.test_quality, 'quality')} on test: trial {point.trial}, "
        f"{point.architecture} with {point.parametrization}, "
        f"{shown(values.get('parameters'), 'parameters')} parameters"
    )


@contextmanager
def _server(data_dir: Path, log: Path, *, quiet: bool) -> Generator[str]:
    """A server on a free port, from when it is ready until it has stopped; gives its URL."""
    command = [sys.executable, "-P", "-m", "service.cli", "serve", "--port", "0", "--json"]
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*command, "--data-dir", str(data_dir)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
            # Ctrl-C in the terminal reaches this process alone, which then ends the server.
            process_group=0,
        )
        assert process.stdout is not None
        try:
            if not quiet:
                typer.echo("The server starts ...")
            yield _first_url(process, process.stdout)
        finally:
            process.terminate()
            process.stdout.close()
            try:
                status = process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                status = process.wait()
        if status != 0:
            raise _ServerFailed(f"The server ended with status {status}.")


def _first_url(process: subprocess.Popen[str], stdout: IO[str]) -> str:
    line = stdout.readline()
    if not line:
        raise _ServerFailed(f"The server did not start: it ended with status {process.wait()}.")
    return str(json.loads(line)["url"])


def _tell_nobody(_line: str) -> None:
    """Programs get all of it at the end."""


def _tail(log: Path) -> list[str]:
    return log.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
