"""Arguments that many commands take, completed by the shell."""

from typing import Annotated

import typer

from service.commands import completion

StudyArgument = Annotated[
    str, typer.Argument(metavar="ID", help="The study's id.", autocompletion=completion.studies)
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
DatasetArgument = Annotated[
    str,
    typer.Argument(metavar="ID", help="The data set's id.", autocompletion=completion.datasets),
]
ModelArgument = Annotated[
    str, typer.Argument(metavar="ID", help="The model's id.", autocompletion=completion.models)
]
