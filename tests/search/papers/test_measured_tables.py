"""Tables with what was measured: by the cells that the project keeps."""

from pathlib import Path

import pytest

from search.errors import UnknownName
from search.papers import SEARCHED, TABLES
from search.papers.cells import cells_of, read_cells
from search.papers.measured_tables import measured_entries, measured_table
from search.papers.verdicts import judge

FOLDER = Path(__file__).parents[3] / "deploy/reproduction"


@pytest.mark.parametrize("name", TABLES)
def test_every_row_has_the_verdict_on_its_cells(name: str) -> None:
    plain, table = TABLES[name].document(), measured_table(name)
    cells = read_cells(FOLDER / f"{name}.jsonl")
    for row, measured in zip(plain.entries, table.entries, strict=True):
        own = cells_of(row, name, cells)
        assert measured.verdict == judge(row, [cell.measured for cell in own])
        found = [cell.parameters for cell in own if cell.value is not None]
        expected = found if row.system == SEARCHED else []
        assert [one.parameters for one in measured.found] == expected
        assert all(one.parameters <= row.parameters for one in measured.found)


def test_a_tables_verdicts_are_those_of_the_papers_rows() -> None:
    entries = measured_entries()
    assert [entry.name for entry in entries] == list(TABLES)
    for entry in entries:
        assert sum(entry.verdicts.values()) == entry.rows
    # 97.7 % pixel by pixel.
    (row,) = [row for row in measured_table("pixel-mnist").entries if row.key == "spectral-rnn-128"]
    assert row.verdict is not None
    assert row.verdict.seeds >= 3
    assert row.verdict.mean == pytest.approx(0.983, abs=0.002)


def test_an_unknown_table_is_refused() -> None:
    with pytest.raises(UnknownName, match="unknown table 'ucrr'; did you mean ucr"):
        measured_table("ucrr")
