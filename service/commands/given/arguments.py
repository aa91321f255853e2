"""Arguments that many commands take, completed by the shell."""

from typing import Annotated

import typer

from service.commands.given import completion

StudyArgument = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="The study's id, 4 letters of its beginning or more, its name, latest, or latest~1.",
        autocompletion=completion.studies,
    ),
]
TrialArgument = Annotated[
    int,
    typer.Argument(
        metavar="TRIAL", min=0, help="The trial's number.", autocompletion=completion.trials
    ),
]
AnyTrialArgument = Annotated[
    int | None,
    typer.Argument(
        metavar="TRIAL",
        min=0,
        help="One trial's number; else all.",
        autocompletion=completion.trials,
    ),
]
CollectionArgument = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="The collection's id, or as with studies.",
        autocompletion=completion.collections,
    ),
]
DatasetArgument = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="The data set's id, or as with studies.",
        autocompletion=completion.datasets,
    ),
]
ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="The model's id, or as with studies.", autocompletion=completion.models
    ),
]
