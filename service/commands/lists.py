"""`list`: the studies of a server."""

from typing import Annotated

import typer

from service.commands.connection import Asked, asking
from service.commands.shown.listing import (
    FormOption,
    LimitOption,
    SortOption,
    WideOption,
    Wishes,
    show_list,
)
from service.commands.shown.study_columns import STUDIES
from storage.records import StudyState


@asking
def list_studies(
    asked: Asked,
    state: Annotated[StudyState | None, typer.Option(help="Only studies in this state.")] = None,
    wide: WideOption = False,
    form: FormOption = None,
    sort: SortOption = None,
    limit: LimitOption = None,
) -> None:
    """List studies, newest first."""
    wishes = Wishes(wide=wide, form=form, sort=sort, limit=limit)
    show_list(asked, asked.client.studies(state=state), STUDIES, wishes, nothing="no studies")
