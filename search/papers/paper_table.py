"""A table or figure of a paper, with its rows and those of our own."""

from pydantic import Field

from models.spec import Spec
from search.documents.papers import TableDocument, TableEntry
from search.papers.row import Row
from search.papers.searched import searched_entries


class Table(Spec):
    """A table or figure of a paper, or the same one of several."""

    name: str
    title: str
    about: str = Field(description="what is compared, on what, and how it is trained here")
    rows: tuple[Row, ...]

    def entry(self) -> TableEntry:
        """The table without its rows."""
        return TableEntry(name=self.name, title=self.title, about=self.about, rows=len(self.rows))

    def document(self) -> TableDocument:
        """The table as the API answers with it, the rows of our own behind the paper's."""
        printed = (row.entry(self.name) for row in self.rows)
        searched = searched_entries(self.name, self.rows)
        return TableDocument(**self.entry().model_dump(), entries=(*printed, *searched))
