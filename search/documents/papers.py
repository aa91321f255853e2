"""The tables and figures of the papers as the API answers with them: rows and their claims."""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from models.spec import Spec


class Source(Spec):
    """Where a number stands."""

    paper: str
    table: str = Field(description="the table, figure or section")
    row: str = Field(description="the row as it is named there")


Direction: TypeAlias = Literal["maximize", "minimize"]


class PrintedValue(Spec):
    """A paper prints a number on test data."""

    kind: Literal["value"] = "value"
    metric: str
    direction: Direction
    value: float
    printed: str | None = Field(
        default=None, description="how it is printed, where that is another unit; null: as it is"
    )


class Reaches(Spec):
    """A paper says that a system gets to a value within so many updates."""

    kind: Literal["reaches"] = "reaches"
    metric: str
    direction: Direction
    value: float
    updates: int = Field(ge=1)


class Fails(Spec):
    """A paper says that a system does not get to a value within so many updates."""

    kind: Literal["fails"] = "fails"
    metric: str
    direction: Direction
    value: float
    updates: int = Field(ge=1)


Claim: TypeAlias = Annotated[PrintedValue | Reaches | Fails, Field(discriminator="kind")]
"""What a paper says of a row."""


class RowEntry(Spec):
    """A row of a table, with a study that trains it."""

    key: str = Field(description="its name within the table; what stands before a / is its group")
    system: str = Field(description="the name of the system")
    title: str
    description: str = Field(description="what the system is, and what differs from the source")
    source: Source
    claim: Claim | None = Field(description="null: nothing is printed that could be compared")
    direction: Direction = Field(description="of the task's quality")
    test_samples: int | None = Field(
        description="of which a printed share is the share; null: no share is printed"
    )
    printed_parameters: int | str | None = Field(description="as the paper prints them")
    parameters: int = Field(description="all trainable numbers, as they are")
    updates: int = Field(description="of the optimizer, in the whole training")
    predicted_seconds: float = Field(description="of one core, roughly, for one seed")
    erratum: str | None = Field(description="what is misprinted")
    deviation: str | None = Field(description="what differs from the source's training")
    unreachable: str | None = Field(description="why it cannot be reproduced; null: it may be")
    spec: dict[str, Any] = Field(description="a study of this row, ready to be sent; its seed is 0")


class TableEntry(Spec):
    """A table or figure, without its rows."""

    name: str
    title: str
    about: str
    rows: int = Field(description="that a paper prints; those of our own are not counted")


class TableList(Spec):
    """All tables."""

    items: tuple[TableEntry, ...]


class TableDocument(TableEntry):
    """A table with its rows."""

    entries: tuple[RowEntry, ...]
