"""Rows of our own: a study for each task of the tables."""

import math

import pytest

from search.documents.papers import Fails, Reaches, RowEntry
from search.papers import SEARCHED, TABLES, Table, rows_named
from search.studies.spec import StudySpec

ROWS = [
    (table, entry)
    for table in TABLES.values()
    for entry in table.document().entries
    if entry.system == SEARCHED
]


def of(table: str) -> list[RowEntry]:
    return [entry for one, entry in ROWS if one.name == table]


def test_every_task_of_a_table_is_searched_once() -> None:
    assert {table.name for table, _ in ROWS} == set(TABLES)
    assert len({(table.name, entry.key) for table, entry in ROWS}) == len(ROWS)
    assert len(of("ucr")) == 21
    assert [entry.key for entry in of("permuted-mnist")] == [SEARCHED]
    # Two alphabets are two tasks.
    assert [entry.key for entry in of("ptb-characters")] == [SEARCHED, f"{SEARCHED}-2"]


@pytest.mark.parametrize(
    ("table", "entry"), ROWS, ids=[f"{table.name}-{entry.key}" for table, entry in ROWS]
)
def test_a_searched_row_is_within_the_largest_system(table: Table, entry: RowEntry) -> None:
    assert entry.spec["name"] == f"{table.name}: {entry.key}, seed 0"
    spec = StudySpec.model_validate(entry.spec)
    assert spec.limits.parameters == entry.parameters
    assert (spec.budget.trials, len(spec.parametrizations)) == (30, 5)
    assert list(spec.objectives) == ["quality"]
    assert not isinstance(entry.claim, Fails)
    assert entry.claim is None or entry.claim.direction == entry.direction


def test_a_search_that_would_take_long_begins_no_trial_after_four_device_hours() -> None:
    (words,) = of("ptb-words")
    (rows,) = (entry for entry in of("sequences") if entry.key == "rows/searched")
    assert StudySpec.model_validate(words.spec).budget.device_hours == 4
    assert StudySpec.model_validate(rows.spec).budget.device_hours is None
    # What has begun comes to its end, and takes no longer than the largest system.
    largest = max(
        entry.predicted_seconds
        for entry in TABLES["ptb-words"].document().entries
        if entry.parameters == words.parameters and entry.system != SEARCHED
    )
    assert words.predicted_seconds == pytest.approx(4 * 3600 + largest)


def test_its_claim_is_the_best_that_is_printed() -> None:
    gun_point = next(entry for entry in of("ucr") if entry.key == "GunPoint/searched")
    assert (gun_point.claim and gun_point.claim.value, gun_point.parameters) == (0.96, 5667)
    (words,) = of("ptb-words")
    # Perplexity: the least.
    assert words.claim is not None
    assert words.claim.value == 121.3


def test_where_no_value_is_printed_its_claim_is_what_a_system_is_said_to_reach() -> None:
    copying = {entry.key: entry.claim for entry in of("copy")}
    assert list(copying) == [f"T={lag}/searched" for lag in (100, 200, 300, 500)]
    claim = copying["T=500/searched"]
    assert isinstance(claim, Reaches)
    # Below nine tenths of the baseline: 10 ln 8 / (T + 20).
    assert claim.value == pytest.approx(0.9 * 10 * math.log(8) / 520, rel=1e-3)
    # Where nothing is said either, what is measured stands alone, among the networks of its size.
    bibtex, _mediamill = of("multilabel")
    assert (bibtex.key, bibtex.claim, bibtex.direction) == (
        "bibtex-L=60/searched",
        None,
        "minimize",
    )
    assert bibtex.parameters == 1_246_367


def test_searched_rows_are_trained_where_they_are_asked_for() -> None:
    entries = TABLES["ucr"].document().entries
    assert len(rows_named(entries)) == 84
    assert len(rows_named(entries, searched=True)) == 105
    assert len(rows_named(entries, systems=[SEARCHED])) == 21
    assert len(rows_named(entries, rows=["GunPoint"])) == 4
    assert len(rows_named(entries, rows=["GunPoint"], searched=True)) == 5
    assert [one.key for one in rows_named(entries, rows=["GunPoint/searched"])] == [
        "GunPoint/searched"
    ]
