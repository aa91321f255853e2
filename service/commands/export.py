"""`export`: a study's trials as runs of MLflow, Weights & Biases or TensorBoard."""

from typing import Annotated

import typer

from service.client.exports.targets import Target
from service.commands.connection import Asked, asking
from service.commands.given.arguments import StudyArgument


@asking
def export(
    asked: Asked,
    study_id: StudyArgument,
    to: Annotated[Target, typer.Option("--to", help="Where to.")],
    place: Annotated[
        str | None,
        typer.Option(
            metavar="PLACE",
            help="An MLflow tracking URI, a W&B project or a folder for TensorBoard; by default "
            "what MLflow is set to, reflectory, and ./tensorboard.",
        ),
    ] = None,
) -> None:
    """Write a run for each trial to MLflow, W&B or TensorBoard. A second export updates them."""
    exported = asked.client.open(study_id).export(to=to, place=place)
    count = "1 run" if exported.runs == 1 else f"{exported.runs} runs"
    document = {"to": exported.to, "place": exported.place, "runs": exported.runs}
    asked.show(document, f"{count} in {exported.place}")
