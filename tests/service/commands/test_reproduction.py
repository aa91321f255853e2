"""`reproduce`: what is planned, kept and shown, and a small table against a real server."""

import csv
import io
import statistics
from collections.abc import Sequence
from pathlib import Path

import pytest

from search.documents.papers import RowEntry, TableDocument
from search.papers import SEARCHED, TABLES, rows_named
from search.papers.cells import (
    BadResults,
    Cell,
    CurvePoint,
    append_cell,
    cells_of,
    digest_of,
    document_for,
    read_cells,
)
from service.commands.reproduction.markdown import SUMMARY, as_document, document_of
from service.commands.reproduction.results import (
    HEADINGS,
    as_csv,
    as_html,
    results_of,
)
from service.commands.reproduction.run import plans

ROOT = Path(__file__).parents[3]

UCR = TABLES["ucr"].document()


def row(key: str, table: TableDocument = UCR) -> RowEntry:
    return next(entry for entry in table.entries if entry.key == key)


def cell(one: RowEntry, seed: int, value: float | None, **other: object) -> Cell:
    return Cell.model_validate(
        {
            "table": "ucr",
            "row": one.key,
            "seed": seed,
            "digest": digest_of(document_for(one, seed)),
            "value": value,
            "reason": None if value is not None else "the loss is NaN",
            "updates": one.updates,
            "epochs": 60,
            "parameters": one.parameters,
            "seconds": 12.5,
            "machine": "ada",
            "commit": "0123456789ab",
            "version": "0.1.0",
            "study": "3f1c9a2b7d4e",
            **other,
        }
    )


def cells(one: RowEntry, *values: float | None) -> Sequence[Cell]:
    return [cell(one, seed, value) for seed, value in enumerate(values)]


def test_a_seed_moves_the_training_and_what_the_task_draws_and_nothing_else() -> None:
    for table in TABLES.values():
        printed = rows_named(table.document().entries)
        for own, entry in zip(table.rows, printed, strict=True):
            assert document_for(entry, 4) == own.document(table.name, seed=4)


def test_a_digest_is_of_all_that_is_trained_and_not_of_its_name() -> None:
    document = document_for(row("GunPoint/rnn-32"), 0)
    assert digest_of(document) == digest_of({**document, "name": "other"})
    assert digest_of(document) != digest_of({**document, "seed": 1})
    assert digest_of(document) != digest_of({**document, "budget": {"trials": 1, "epochs": 61}})


def test_cheap_rows_come_first_and_what_is_done_or_cannot_be_is_left_out() -> None:
    done = cells(row("GunPoint/rnn-32"), 0.9)
    todo = plans("ucr", rows_named(UCR.entries), seeds=2, done=done)
    assert len(todo) == 76 * 2 - 1
    costs = [plan.row.predicted_seconds for plan in todo]
    assert costs == sorted(costs)
    named = {(plan.row.key, plan.seed) for plan in todo}
    assert ("GunPoint/rnn-32", 0) not in named
    assert ("GunPoint/rnn-32", 1) in named
    assert not [key for key, _ in named if key.startswith(("ECG200", "Lightning2"))]
    assert len({plan.name for plan in todo}) == len(todo)


def test_prices_are_near_what_the_trainings_that_are_checked_in_took_a_cpu() -> None:
    took = dict[tuple[str, str], list[float]]()
    for file in (ROOT / "deploy" / "reproduction").glob("*.jsonl"):
        for one in read_cells(file):
            if one.updates >= 1000 and one.reason is None and "NVIDIA" not in one.machine:
                took.setdefault((one.table, one.row), []).append(one.seconds / one.updates)
    ratios = [
        statistics.median(took[name, one.key]) * one.updates / one.predicted_seconds
        for name, table in TABLES.items()
        for one in table.document().entries
        if (name, one.key) in took and one.system != SEARCHED
    ]
    assert len(ratios) > 100
    assert 2 / 3 < statistics.median(ratios) < 3 / 2
    # Some were trained beside others on a busy machine.
    assert sum(1 / 3 < ratio < 3 for ratio in ratios) > 0.9 * len(ratios)


def test_a_cell_of_another_recipe_is_not_the_rows() -> None:
    one = row("GunPoint/rnn-32")
    stale = cell(one, 0, 0.5, digest="000000000000")
    assert [c.value for c in cells_of(one, "ucr", [stale, *cells(one, 0.9)])] == [0.9]
    assert len(plans("ucr", [one], seeds=1, done=[stale])) == 1


def test_a_file_of_cells_holds_what_was_written_and_a_damaged_line_is_named(tmp_path: Path) -> None:
    file = tmp_path / "new" / "ucr.jsonl"
    assert read_cells(file) == []
    written = cells(row("GunPoint/rnn-32"), 0.9, None)
    for one in written:
        append_cell(file, one)
    assert read_cells(file) == written
    file.write_text(file.read_text() + '{"table": "ucr"}\n')
    with pytest.raises(BadResults, match=r"ucr\.jsonl, line 3: row Field required"):
        read_cells(file)


def test_results_stand_beside_what_is_printed() -> None:
    one, other = row("GunPoint/rnn-32"), row("Coffee/rnn-32")
    found = results_of(
        UCR,
        [one, other, row("Beef/rnn-32")],
        [*cells(one, 0.96, 0.94, 0.95), *cells(other, 0.5, 0.6, 0.7)],
        refused={"Beef/rnn-32": "ucr/Beef is not in the data folder"},
    )
    texts = [dict(zip(HEADINGS, result.texts(), strict=True)) for result in found]
    assert (
        texts[0]
        | {
            "printed": "0.947",
            "measured": "0.95 ± 0.025",
            "difference": "+0.003",
            "seeds": "3",
            "verdict": "reproduced",
        }
        == texts[0]
    )
    assert [text["verdict"] for text in texts] == ["reproduced", "not reproduced", "cannot be"]
    assert found[2].verdict.why == "ucr/Beef is not in the data folder"
    rows = list(csv.DictReader(io.StringIO(as_csv(found))))
    assert [line["row"] for line in rows] == ["GunPoint/rnn-32", "Coffee/rnn-32", "Beef/rnn-32"]
    assert rows[2]["why"] == "ucr/Beef is not in the data folder"
    page = as_html(found, title="<b>")
    assert "&lt;b&gt;" in page
    assert page.count("<tr>") == 4


def test_the_document_has_every_row_of_every_table() -> None:
    tables = [table.document() for table in TABLES.values()]
    one = row("GunPoint/rnn-32")
    text = as_document(tables, cells(one, 0.96, None, 0.95))
    for table in tables:
        for entry in table.entries:
            assert f"\n| {entry.key} | " in text, entry.key
    assert "not yet" in text
    assert "Seed 1: the loss is NaN" in text
    assert "Machines: ada." in text


def test_the_projects_document_is_that_of_its_cells() -> None:
    document = ROOT / "deploy/docs/benchmarks/reproduction.md"
    command = document.read_text().partition("`reflectory ")[2].partition("`")[0]
    assert document_of(ROOT / "deploy/reproduction") == document.read_text(), command


def test_a_training_that_has_not_ended_is_no_seed_until_it_has() -> None:
    one = row("GunPoint/rnn-32")
    points = [CurvePoint(updates=50 * n, validation=n / 10) for n in (1, 2, 3)]
    short, long = (
        cell(one, 0, None, reason=None, unfinished=True, epochs=n, updates=50 * n, curve=points[:n])
        for n in (2, 3)
    )
    for known in ([short, long], [long, short]):
        assert cells_of(one, "ucr", known) == [long]
    ended = cell(one, 0, 0.9, curve=points)
    for known in ([long, ended], [ended, long]):
        assert cells_of(one, "ucr", known) == [ended]
    assert "unfinished" not in ended.model_dump_json()
    text = as_document([UCR], [long])
    assert "\n| GunPoint/rnn-32 | 0.947 | – | – | 1,507 | 0 | 3,000 | – | not yet |\n" in text
    sentence = "Seed 0 has not ended: 150 of 3,000 updates in 12 s, validation 0.3."
    assert f"- GunPoint/rnn-32: {sentence}\n" in text
    assert "\n| GunPoint/rnn-32 | 150 | 0.3 | – | – | – | – |\n" in text
    assert "has not ended" not in as_document([UCR], [long, ended])


def test_a_claim_is_decided_by_seeds_that_reach_it_before_they_end() -> None:
    table = TABLES["addition"].document()
    one = row("T=30/lstm-128", table)
    paused = [
        cell(
            one,
            seed,
            None,
            table="addition",
            reason=None,
            unfinished=True,
            epochs=2,
            updates=800,
            best_validation=0.07,
        )
        for seed in range(3)
    ]
    text = as_document([table], paused)
    assert "| T=30/lstm-128 | <= 0.15 | – | – | 67,457 | 3 | 8,000 | – | reproduced |\n" in text
    assert "- T=30/lstm-128: 3 of 3 seeds reach it, 3 before the end\n" in text
    assert "T=30/lstm-128: Seed 2 has not ended: 800 of 8,000 updates" in text
    assert "| 2 | 8,000 | – | not yet |" in as_document([table], paused[:2])
    left = {plan.seed for plan in plans("addition", [one], seeds=5, done=paused)}
    assert left == {0, 1, 2, 3, 4}, "their ends are not known"
    left = {
        plan.seed for plan in plans("addition", [one], seeds=5, done=paused, until_decided=True)
    }
    assert left == {3, 4}


def test_what_was_found_stands_with_its_table_and_in_short_above_all() -> None:
    text = as_document([UCR], [], findings={SUMMARY: "- None yet.", "ucr": "They are small."})
    assert text.index("## In short\n\n- None yet.") < text.index("## UCR time series (`ucr`)")
    assert text.index("## UCR time series") < text.index("What was found\n\nThey are small.")


def test_what_is_left_has_its_price_and_its_command() -> None:
    highway = TABLES["highway"].document()
    text = as_document([highway], [])
    hours = sum(entry.predicted_seconds for entry in highway.entries[:2]) / 3600
    assert f"Left: 2 rows, predicted to take {hours:.1f} hours of one core for each seed" in text
    assert "`reflectory reproduce highway --seeds 3 --results" in text
    copy = as_document([TABLES["copy"].document()], [])
    assert "predicted to take at most " in copy, "a claim may be decided before the end"
    assert "`reflectory reproduce copy --seeds 3 --until-decided --results copy.jsonl`" in copy
    done = [
        one
        for entry in UCR.entries
        if entry.unreachable is None and entry.system != "searched"
        for one in cells(entry, 0.1, 0.1, 0.1)
    ]
    assert "Left: " not in as_document([UCR], done)
    # Three seeds that are far apart settle nothing: five do.
    undecided = as_document([UCR], cells(row("GunPoint/rnn-32"), 0.9, 0.95, 0.86))
    assert "`reflectory reproduce ucr --seeds 5 --results" in undecided


def test_systems_are_ranked_over_the_data_sets_that_have_all_of_them() -> None:
    systems = ("rnn-32", "lstm-32", "ornn-32-16", "svd-rnn-32-16")
    known = [
        cell
        for place, data_set in enumerate(("GunPoint", "Coffee", "CBF"))
        for rank, system in enumerate(systems)
        for cell in cells(row(f"{data_set}/{system}"), *[0.9 - rank / 10 - place / 50] * 3)
    ]
    known += cells(row("Beef/rnn-32"), 0.5, 0.5, 0.5)
    known += cells(row("Adiac/rnn-32"), 0.5, 0.5)
    text = as_document([UCR], known)
    assert "Ranks over 3 data sets, 18 left out" in text
    assert "\n| rnn-32 | 1.00 | 0.883 | 0.880 |\n| lstm-32 | 2.00 | 0.962 | 0.780 |\n" in text
    assert "\n| rnn-32, lstm-32 | 3 | 0 | 0 | 1 |\n" in text
    assert "differ by less than 2.71 may do so by chance" in text


def test_searched_rows_are_counted_apart_from_what_is_printed() -> None:
    known = [
        found
        for name, value in (("GunPoint", 0.98), ("CBF", 0.9), ("Coffee", 1.0), ("ECG200", 0.9))
        for found in cells(row(f"{name}/searched"), value, value, value)
    ]
    text = as_document([UCR], known)
    link = "[UCR time series](#ucr-time-series-ucr)"
    assert f"\n| {link} | 84 | 0 | 0 | 0 | 8 | 76 | 12 | 0.0 |\n" in text
    assert "\n| all | 84 | 0 | 0 | 0 | 8 | 76 | 12 | 0.0 |\n" in text
    price = "Not searched yet: 16 rows, predicted to take at most "
    assert price in text
    assert "`reflectory reproduce ucr --seeds 1 --systems searched --results ucr.jsonl`" in text
    assert "is better than the best system" not in text
    assert "\n| GunPoint/searched | 0.96 | 0.98 ± 0 | +0.02 | 5,667 of 5,667 | 3 |" in text
    # What ECG200 prints is no predictor's, and so it does not count.
    assert "Better than the best printed value on 1, worse on 1 of 3 tasks" in text
    assert "that a system of the papers has here" not in text
    known += [
        found
        for key, value in (
            ("GunPoint/rnn-32", 0.9),
            ("GunPoint/lstm-32", 0.99),
            ("CBF/rnn-32", 0.8),
        )
        for found in cells(row(key), value, value, value)
    ]
    beside = "the best mean that a system of the papers has here, which is chosen on test data"
    text = as_document([UCR], known)
    assert f"Better than {beside} on 1, worse on 1 of 2 tasks" in text
    in_all = "better than the best system of the papers, as it is here, on 1 and worse on 1 of 2"
    assert in_all in text


def test_a_searched_row_stands_beside_the_best_system_of_its_task_in_whatever_group() -> None:
    """Bibtex is one task in groups by depth, whose values are losses and have no claim."""
    multilabel = TABLES["multilabel"].document()
    rows = {entry.key: entry for entry in multilabel.entries}
    values = {
        "bibtex-L=60/searched": 0.05,
        "bibtex-L=10/mlp-128-10-dropout": 0.056,
        "bibtex-L=60/mlp-128-60-dropout": 0.07,
    }
    known = [
        found for key, value in values.items() for found in cells(rows[key], value, value, value)
    ]
    known = [found.model_copy(update={"table": "multilabel"}) for found in known]
    text = as_document([multilabel], known)
    beside = "the best mean that a system of the papers has here, which is chosen on test data"
    assert f"What was found differs by +0.006 (better is positive) from {beside}." in text
    assert "from the best printed value" not in text


def test_the_document_that_is_kept_is_what_its_files_make() -> None:
    """The command that stands in it writes it anew."""
    folder = ROOT / "deploy/reproduction"
    known = [cell for file in folder.glob("*.jsonl") for cell in read_cells(file)]
    assert known
    assert {cell.table for cell in known} <= set(TABLES)
    assert {file.stem for file in folder.glob("*.md")} <= {*TABLES, SUMMARY}
    text = document_of(folder)
    assert text == (ROOT / "deploy/docs/benchmarks/reproduction.md").read_text()
