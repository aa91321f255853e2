"""`list`: the studies of a server."""

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from service.api.paths import STUDIES as PATH
from service.commands.connection import (
    DataDirOption,
    JsonOption,
    ServerOption,
    connected,
    find_server,
)
from service.commands.given.quick import FAULTS, pages
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


def list_studies(
    state: Annotated[StudyState | None, typer.Option(help="Only studies in this state.")] = None,
    tag: Annotated[str | None, typer.Option(help="Only studies with this tag.")] = None,
    text: Annotated[
        str | None, typer.Option(help="Only studies whose name, notes or tags contain it.")
    ] = None,
    wide: WideOption = False,
    form: FormOption = None,
    sort: SortOption = None,
    limit: LimitOption = None,
    server: ServerOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """List studies, newest first."""
    most = limit if sort is None else None
    asked = {"state": state, "tag": tag, "text": text}
    found = _found(server, data_dir, asked, most, as_json=as_json)
    wishes = Wishes(wide=wide, form=form, sort=sort, limit=limit)
    show_list(found, STUDIES, wishes, as_json=as_json, nothing="no studies")


def _found(
    server: str | None,
    data_dir: Path | None,
    asked: Mapping[str, str | None],
    most: int | None,
    *,
    as_json: bool,
) -> list[dict[str, Any]]:
    """The studies, as JSON; errors end the command with their exit code."""
    try:
        quick = pages(find_server(server, data_dir).url, PATH, asked)
        return list(islice(quick, most))
    except FAULTS:
        with connected(server, data_dir, as_json=as_json) as client:
            found: Iterator[Any] = client.studies(**asked)
            return [study.model_dump(mode="json") for study in islice(found, most)]
