"""What trainings of rows came to: cells, a row with a seed each, as lines of JSON in a file."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import Field, ValidationError

from models.spec import Spec
from search.documents.papers import RowEntry
from search.errors import SearchError
from search.papers.row import SEEDED
from search.papers.verdicts import Measured

_DIGITS = 12


class BadResults(SearchError):
    """A line of a file of results is none; the message names the file and the line."""


class CurvePoint(Spec):
    """What is known of one training after some of its updates, to four digits."""

    updates: int
    validation: float = Field(description="the task's metric")
    train_loss: float | None = None
    margin: float | None = Field(
        default=None, description="of the singular values of recurrent or hidden weights"
    )
    gradient_first: float | None = Field(
        default=None, description="|dL/dh| before the first step or layer"
    )
    gradient_last: float | None = Field(default=None, description="|dL/dh| after the last one")


Curve: TypeAlias = tuple[CurvePoint, ...]


def _is_default(value: object) -> bool:
    return value is False or value is None


class Cell(Spec):
    """What one seed of one row came to, and where."""

    table: str
    row: str
    seed: int
    digest: str = Field(description="of the study's document, its name excepted")
    value: float | None = Field(
        description="on test data; null: the training failed, or has not ended"
    )
    reason: str | None = Field(description="why it failed")
    unfinished: bool = Field(
        default=False,
        exclude_if=_is_default,
        description="whether the budget was used up before the training ended, of which `epochs` "
        "and `curve` tell so much",
    )
    best_validation: float | None = Field(
        default=None,
        exclude_if=_is_default,
        description="of a training that has not ended, whichever epoch has it",
    )
    updates: int
    epochs: int
    parameters: int
    network: str | None = Field(
        default=None,
        exclude_if=_is_default,
        description="architecture and parametrization, where a search chose them",
    )
    trainings: float | None = Field(
        default=None,
        exclude_if=_is_default,
        description="epochs of all trials of a search, in whole trainings; null: not kept",
    )
    seconds: float = Field(description="of device time")
    machine: str
    commit: str = Field(description="of the program that asked")
    version: str
    study: str = Field(description="its id on the server that trained it")
    curve: Curve = Field(default=(), description="how it was trained, some points of it")

    @property
    def measured(self) -> Measured:
        """As verdicts take it."""
        return Measured(
            seed=self.seed,
            value=self.value,
            updates=self.updates,
            reason=self.reason,
            unfinished=self.unfinished,
            best_validation=self.best_validation,
        )


def document_for(row: RowEntry, seed: int) -> dict[str, Any]:
    """The study of a row with another seed: of the training, and of what its task draws."""
    task = row.spec["task"]
    moved = {name: seed for name in SEEDED if name in task}
    return {
        **row.spec,
        "name": row.spec["name"].replace("seed 0", f"seed {seed}"),
        "task": {**task, **moved},
        "seed": seed,
    }


def digest_of(document: Mapping[str, Any]) -> str:
    """What tells a study's document from others, whatever it is called."""
    named = {name: part for name, part in document.items() if name != "name"}
    text = json.dumps(named, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def read_cells(path: Path) -> list[Cell]:
    """The cells of a file; none where there is no file.

    Raises:
        BadResults: a line is no cell.
    """
    if not path.exists():
        return []
    cells: list[Cell] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            cells.append(Cell.model_validate_json(line))
        except ValidationError as error:
            fault = error.errors()[0]
            where = ".".join(map(str, fault["loc"]))
            raise BadResults(f"{path}, line {number}: {where} {fault['msg']}") from error
    return cells


def append_cell(path: Path, cell: Cell) -> None:
    """Write a cell behind those of a file, which is made where there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{cell.model_dump_json()}\n")


def cells_of(row: RowEntry, table: str, cells: Iterable[Cell]) -> Sequence[Cell]:
    """The cells of a row as it stands now, by seed: those of earlier recipes are left out.

    Of a seed there is one: that which ended, or else the longest of those that have not.
    """
    found: dict[int, Cell] = {}
    for cell in cells:
        if (cell.table, cell.row) != (table, row.key):
            continue
        before = found.get(cell.seed)
        if before is not None and _worth(cell) <= _worth(before):
            continue
        if cell.digest == digest_of(document_for(row, cell.seed)):
            found[cell.seed] = cell
    return [found[seed] for seed in sorted(found)]


def _worth(cell: Cell) -> tuple[bool, int]:
    """What orders the cells of a seed; of two that ended, neither is the better one."""
    return (False, cell.epochs) if cell.unfinished else (True, 0)
