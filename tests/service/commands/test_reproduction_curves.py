"""Curves of rows: what is kept of them, their means, and the forms that show them."""

import csv
import io

from search.papers import TABLES
from search.papers.cells import Cell, Curve, CurvePoint, digest_of, document_for
from service.api.trials.schemas import EpochDocument
from service.commands.reproduction.curves import (
    MOST_POINTS,
    bars,
    curve_of,
    mean_curve,
)
from service.commands.reproduction.markdown import as_document
from service.commands.reproduction.results import as_curves, as_html, results_of

TABLE = TABLES["addition"].document()
ROW = TABLE.entries[0]


def epoch(number: int, validation: float = 0.123456) -> EpochDocument:
    return EpochDocument(
        epoch=number,
        train_loss=0.5,
        validation=validation,
        spectral_margin=None,
        gradient_first=1e-6,
        gradient_last=2.0,
        recovered_batches=0,
        seconds=1.0,
    )


def curve(*values: float) -> Curve:
    return tuple(
        CurvePoint(updates=100 * place, validation=value, gradient_first=value)
        for place, value in enumerate(values, 1)
    )


def cell(seed: int, kept: Curve) -> Cell:
    return Cell(
        table="addition",
        row=ROW.key,
        seed=seed,
        digest=digest_of(document_for(ROW, seed)),
        value=0.01,
        reason=None,
        updates=ROW.updates,
        epochs=3,
        parameters=ROW.parameters,
        seconds=1.0,
        machine="ada",
        commit="0123456789ab",
        version="0.1.0",
        study="3f1c9a2b7d4e",
        curve=kept,
    )


def test_a_curve_keeps_its_ends_and_few_points_between() -> None:
    found = curve_of([epoch(number) for number in range(1, 61)], updates_each=50)
    assert len(found) == MOST_POINTS
    assert (found[0].updates, found[-1].updates) == (50, 3000)
    assert (found[0].validation, found[0].margin) == (0.1235, None)
    assert [point.updates for point in curve_of([epoch(1)], updates_each=2.5)] == [2]
    assert curve_of([], updates_each=50) == ()


def test_means_end_where_the_shortest_training_does() -> None:
    (first, last) = mean_curve([curve(1.0, 3.0), curve(2.0, 5.0, 9.0)])
    assert (first.validation, last.validation, last.updates) == (1.5, 4.0, 200)
    assert first.margin is None
    assert mean_curve([]) == mean_curve([()]) == ()


def test_means_of_seeds_with_points_of_their_own_lie_on_the_lines_between() -> None:
    other = tuple(
        CurvePoint(updates=updates, validation=value, margin=value)
        for updates, value in ((100, 1.0), (180, 3.0), (260, 7.0))
    )
    found = mean_curve([other, curve(1.0, 2.0)])
    assert [point.updates for point in found] == [100, 200]
    assert found[1].validation == (4.0 + 2.0) / 2
    assert found[1].margin is None
    late = (CurvePoint(updates=150, validation=0.5), CurvePoint(updates=200, validation=1.0))
    assert [point.updates for point in mean_curve([late, curve(1.0, 2.0)])] == [150, 200]


def test_bars_stand_between_the_first_and_the_last_value() -> None:
    assert bars(curve(1e-4, 1e-2, 1.0), "gradient, first") == "0.0001 ▁▅█ 1"
    assert bars(curve(0.5, 0.5), "validation") == "0.5 ▁▁ 0.5"
    assert bars(curve(-1.0, 0.0, 1.0), "validation") == "-1 ▁▅█ 1"
    assert bars(curve(1.0), "margin") == "–"


def test_every_form_shows_curves_of_rows_that_have_some() -> None:
    cells = [cell(0, curve(0.2, 0.1)), cell(1, curve(0.4, 0.3))]
    results = results_of(TABLE, TABLE.entries[:2], cells)
    lines = list(csv.DictReader(io.StringIO(as_curves(results))))
    assert [(line["row"], line["seed"], line["updates"]) for line in lines] == [
        (ROW.key, "0", "100"),
        (ROW.key, "0", "200"),
        (ROW.key, "1", "100"),
        (ROW.key, "1", "200"),
    ]
    assert (lines[0]["validation"], lines[0]["margin"]) == ("0.2", "")
    assert "<td>0.3</td>" in as_html(results, title="Addition")
    text = as_document([TABLE], cells)
    assert "### Over updates, means over seeds" in text
    assert f"\n| {ROW.key} | 200 | 0.2 | – | – | 0.2 | – |\n" in text


def test_the_csv_has_trainings_that_have_not_ended_as_well() -> None:
    paused = cell(1, curve(0.4)).model_copy(update={"unfinished": True, "value": None})
    results = results_of(TABLE, TABLE.entries[:1], [cell(0, curve(0.2)), paused])
    seeds = [line["seed"] for line in csv.DictReader(io.StringIO(as_curves(results)))]
    assert seeds == ["0", "1"]


def test_without_curves_there_is_nothing_about_them() -> None:
    results = results_of(TABLE, TABLE.entries[:2], [])
    assert as_curves(results).count("\n") == 1
    assert "Over updates" not in as_html(results, title="Addition")
    assert "Over updates" not in as_document([TABLE], [])
