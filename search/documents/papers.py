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

VerdictKind: TypeAlias = Literal["reproduced", "better", "not reproduced", "cannot be", "not yet"]


class Verdict(Spec):
    """Whether measured values bear out what is claimed of a row."""

    kind: VerdictKind
    why: str | None = None
    seeds: int = Field(
        default=0,
        description="that decide: those that ended, failed ones included, and those that reach "
        "what is claimed before they end",
    )
    mean: float | None = Field(
        default=None, description="on test data, over the seeds that have a value"
    )
    half_width: float | None = Field(
        default=None,
        description="how far the mean's interval of 95 % reaches to either side; null below two "
        "seeds",
    )
    difference: float | None = Field(
        default=None,
        description="the mean less what is printed, or less what is claimed to be reached or not",
    )


class FoundNetwork(Spec):
    """What a search chose."""

    network: str | None = Field(description="architecture × parametrization; null: not kept")
    parameters: int


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
    verdict: Verdict | None = Field(
        default=None,
        description="by the trainings that this version was released with, not by those of this "
        "server; null: not known",
    )
    found: tuple[FoundNetwork, ...] = Field(
        default=(), description="what those trainings chose, by seed; empty but for searched rows"
    )


class TableEntry(Spec):
    """A table or figure, without its rows."""

    name: str
    title: str
    about: str
    rows: int = Field(description="that a paper prints; those of our own are not counted")
    verdicts: dict[VerdictKind, int] = Field(
        default_factory=dict[VerdictKind, int],
        description="how many of these rows have each verdict; empty: not known",
    )


class TableList(Spec):
    """All tables."""

    items: tuple[TableEntry, ...]


class TableDocument(TableEntry):
    """A table with its rows."""

    entries: tuple[RowEntry, ...]
