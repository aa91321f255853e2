"""`papers`: the tables of the papers, whose rows are studies."""

from typing import Annotated

import typer

from service.commands.connection import Asked, asking
from service.commands.shown.paper_tables import table_rows, tables_table


@asking
def papers(
    asked: Asked,
    table: Annotated[
        str | None, typer.Argument(metavar="TABLE", help="One table; by default all, by name.")
    ] = None,
) -> None:
    """Show the tables of the papers, or the rows of one: what is printed, misprinted and measured.

    With --json each row has a study that is ready to be submitted.
    """
    if table is None:
        found = asked.client.papers()
        asked.show_all(found, tables_table, nothing="no tables")
        return
    document = asked.client.paper_table(table)
    asked.show(document, table_rows(document))
