"""Figures: what Plotly draws follows from the trials, whatever they are."""

import gzip
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from search.documents.fronts import (
    DimensionImportance,
    HypervolumePoint,
    ObjectiveImportance,
    ObjectiveInfo,
)
from search.documents.objectives import Objective
from search.documents.region import Region
from search.fronts.dominance import front_of
from search.fronts.noise import Noise
from search.graphs.network_trial import BITS, STRUCTURE, WHOLE
from service.figures.compare import compare_figure
from service.figures.curves import curves_figure
from service.figures.front import MOST_POINTS, front_figure
from service.figures.growth import growth_figure
from service.figures.importance import importance_figure
from service.figures.numbers import read_numbers, write_numbers
from service.figures.parallel import MOST_LINES, parallel_figure
from service.figures.references import Reference
from service.figures.shown import ShownStudy
from storage.records import MetricRecord, TrialOrigin, TrialState
from storage.repositories.trial_summaries import TrialSummary

INFOS: Mapping[Objective, ObjectiveInfo] = {
    "quality": ObjectiveInfo(
        name="quality", metric="accuracy", direction="maximize", unit="fraction of images"
    ),
    "parameters": ObjectiveInfo(
        name="parameters", metric="parameters", direction="minimize", unit="numbers"
    ),
    "throughput": ObjectiveInfo(
        name="throughput", metric="throughput", direction="maximize", unit="samples/s"
    ),
}


def summary(number: int, quality: float | None, parameters: int, **given: Any) -> TrialSummary:
    usual = TrialSummary(
        number=number,
        state=TrialState.COMPLETE,
        origin=TrialOrigin.SAMPLER,
        quality=quality,
        parameters=parameters,
        throughput=None,
        measurement_id=None,
        continues=None,
        finished_at=None,
        architecture=("rnn", "gru")[number % 2],
        parametrization=("dense", "low_rank", "givens")[number % 3],
        dense_parameters=1000,
        throughput_ratio=None,
        latency_p50=None,
        latency_p99=None,
        bytes=None,
        violation=None,
        predicted={},
        best_epoch=1,
    )
    return replace(usual, **given)


def study(trials: Sequence[TrialSummary], **given: Any) -> ShownStudy:
    known = [one for one in trials if one.quality is not None and math.isfinite(one.quality)]
    front = front_of(known, [INFOS["quality"], INFOS["parameters"]])
    return ShownStudy(
        **{
            "trials": trials,
            "on_front": frozenset(one.number for one in front),
            "infos": INFOS,
            "own": ("quality", "parameters"),
            **given,
        }
    )


def checked(figure: dict[str, Any]) -> dict[str, Any]:
    """A figure that goes through JSON and keeps to what draws under a strict policy."""
    assert figure == json.loads(json.dumps(figure, allow_nan=False))
    assert {trace["type"] for trace in figure["data"]} <= {"scatter", "bar"}
    assert figure["config"]["showSendToCloud"] is False
    assert figure["layout"]["meta"]["summary"]
    return figure


def drawn(figure: Mapping[str, Any]) -> dict[int, tuple[float, float]]:
    """Trial -> where its mark is, in the first panel."""
    return {
        number: (x, y)
        for trace in figure["data"]
        if trace["mode"] == "markers" and trace.get("xaxis", "x") == "x"
        for number, x, y in zip(trace.get("customdata", ()), trace["x"], trace["y"], strict=False)
    }


def test_points_are_where_their_values_are_in_the_colour_of_their_parametrization() -> None:
    trials = [summary(0, 0.7, 100), summary(1, 0.8, 1000), summary(2, 0.6, 5000)]
    figure = checked(front_figure(study(trials)))
    assert drawn(figure) == {0: (100, 0.7), 1: (1000, 0.8), 2: (5000, 0.6)}
    colours = {
        trace["name"]: trace["marker"]["color"] for trace in figure["data"] if "customdata" in trace
    }
    assert sorted(colours) == ["dense", "givens", "low_rank"]
    assert len(set(colours.values())) == 3
    legend = {t["name"]: t["marker"]["color"] for t in figure["data"] if t["x"] == [None]}
    assert colours.items() <= legend.items()
    assert {"rnn", "gru"} <= legend.keys()
    symbols = {
        number: symbol
        for trace in figure["data"]
        if "customdata" in trace
        for number, symbol in zip(trace["customdata"], trace["marker"]["symbol"], strict=True)
    }
    assert [symbols[n].endswith("-open") for n in range(3)] == [False, False, True]
    assert symbols[0].removesuffix("-open") == symbols[2].removesuffix("-open") != symbols[1]
    assert figure["layout"]["xaxis"]["type"] == "log"
    (stairs,) = [t for t in figure["data"] if t["mode"] == "lines"]
    assert list(zip(stairs["x"], stairs["y"], strict=True)) == [
        (100, 0.7),
        (1000, 0.7),
        (1000, 0.8),
    ]


def test_a_third_objective_is_a_second_panel_or_the_size_of_marks() -> None:
    trials = [summary(n, 0.5 + n / 10, 100 * n + 100, throughput=100.0 - n) for n in range(4)]
    three = study(trials, own=("quality", "parameters", "throughput"))
    beside = checked(front_figure(three))
    assert {trace.get("xaxis", "x") for trace in beside["data"]} == {"x", "x2"}
    assert "yaxis2" not in beside["layout"], "both panels share the y axis"
    alone = checked(front_figure(three, panels=1))
    assert {trace.get("xaxis", "x") for trace in alone["data"]} == {"x"}
    sizes = {
        number: size
        for trace in alone["data"]
        if "customdata" in trace
        for number, size in zip(trace["customdata"], trace["marker"]["size"], strict=True)
    }
    assert sizes[0] > sizes[1] > sizes[2] > sizes[3], "the faster, the larger"


def test_noise_is_a_band_and_bars_and_several_seeds_have_their_own() -> None:
    trials = [summary(0, 0.95, 100), summary(1, 0.96, 200)]
    figure = checked(front_figure(study(trials, noise=Noise(400), intervals={1: (0.9, 0.97)})))
    (band,) = [shape for shape in figure["layout"]["shapes"] if shape["type"] == "rect"]
    assert band["y1"] == 0.96
    # 1.645 standard errors of a difference of two shares of 400.
    assert band["y0"] == pytest.approx(
        0.96 - 1.645 * math.sqrt((0.96 * 0.04 + 0.934 * 0.066) / 400), abs=2e-3
    )
    bars = {
        number: (up, down)
        for trace in figure["data"]
        if "error_y" in trace
        for number, up, down in zip(
            trace["customdata"],
            trace["error_y"]["array"],
            trace["error_y"]["arrayminus"],
            strict=True,
        )
    }
    # As the design of this page has it: 0.95 of 400 is +-0.021 with 95 %.
    assert bars[0] == pytest.approx((0.0214, 0.0214), abs=1e-4)
    assert bars[1] == pytest.approx((0.01, 0.06))
    assert not [t for t in front_figure(study(trials))["data"] if "error_y" in t]


def test_an_outlier_is_inside_and_the_axis_is_zoomed_to_the_front() -> None:
    trials = [summary(0, 0.9, 100), summary(1, 0.95, 200), summary(2, 0.1, 10**7)]
    figure = front_figure(study(trials))
    assert drawn(figure)[2] == (10**7, 0.1)
    low, high = figure["layout"]["xaxis"]["range"]
    assert 1.9 < low < 2 < math.log10(200) < high < 2.5


def test_the_region_is_shaded_and_named_trials_are_told() -> None:
    region = Region({"parameters": ("at_most", 150.0), "quality": ("at_least", 0.5)})
    trials = [summary(0, 0.9, 100), summary(1, 0.95, 200)]
    given = study(trials, region=region, named={0: "rnn-128", 1: "the original"}, original=1)
    figure = checked(front_figure(given))
    ends = [shape for shape in figure["layout"]["shapes"] if shape.get("name") == "region"]
    assert [shape["type"] for shape in ends] == ["rect", "line", "rect", "line"]
    assert ends[1]["x0"] == 150
    assert ends[3]["y0"] == 0.5
    (stars,) = [trace for trace in figure["data"] if trace.get("text")]
    assert stars["text"] == ["rnn-128", "the original"]
    assert stars["marker"]["symbol"] == ["circle-open", "star"]
    assert "parameters up to 150" in figure["layout"]["meta"]["caption"]


def test_baselines_are_tied_to_their_points() -> None:
    trials = [summary(1, 0.9, 100, throughput=90.0, throughput_ratio=1.5)]
    given = study(trials, own=("quality", "parameters", "throughput"))
    figure = checked(front_figure(given, x="parameters", y="throughput"))
    (baseline,) = [trace for trace in figure["data"] if trace.get("name") == "dense baseline"]
    assert (baseline["x"], baseline["y"]) == ([1000.0], [60.0])


def test_a_network_study_has_its_own_words_and_other_tools_beside() -> None:
    forms = (WHOLE, BITS, STRUCTURE)
    trials = [
        summary(n, 1.0 - n / 100, 100, bytes=1000 - 100 * n, parametrization=forms[n])
        for n in range(3)
    ]
    given = study(
        trials,
        own=("quality", "bytes"),
        infos={
            **INFOS,
            "bytes": ObjectiveInfo(
                name="bytes", metric="bytes", direction="minimize", unit="bytes"
            ),
        },
        is_network=True,
        references=(Reference("another tool", 900, 0.97),),
    )
    figure = checked(front_figure(given))
    assert drawn(figure)[2] == (800, 0.98)
    names = {trace.get("name") for trace in figure["data"]}
    assert {"as it was uploaded", "fewer bits", "another tool, for comparison"} <= names
    assert "rnn" not in names


VALUES = st.one_of(
    st.none(),
    st.floats(0, 1),
    st.sampled_from([float("nan"), float("inf"), 0.5, 0.5, 1e300, -1e308]),
)
TRIALS = st.lists(st.tuples(VALUES, st.sampled_from([1, 7, 7, 500, 10**9])), max_size=40)


@given(TRIALS, st.booleans(), st.integers(1, 2))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_values_make_a_figure_where_every_trial_is_drawn_or_counted(
    values: list[tuple[float | None, int]], noisy: bool, panels: int
) -> None:
    trials = [summary(n, q, p, throughput=float(p)) for n, (q, p) in enumerate(values)]
    given = study(
        trials,
        own=("quality", "parameters", "throughput"),
        noise=Noise(100) if noisy else None,
    )
    figure = checked(front_figure(given, panels=panels))
    known = {one.number for one in trials if one.quality is not None and math.isfinite(one.quality)}
    assert drawn(figure).keys() == known
    if known and len(known) < len(trials):
        left = f"{len(trials) - len(known)} without a value of both axes"
        assert left in figure["layout"]["meta"]["caption"]
    hyperparameters = {n: {"d": n % 3, "r": q if n % 2 else "x"} for n, (q, _) in enumerate(values)}
    checked(parallel_figure(given, hyperparameters))
    checked(compare_figure([("a", given), ("b", given)]))


def test_of_ten_thousand_trials_the_front_is_whole_and_others_are_counted() -> None:
    trials = [
        summary(n, ((n * 7919) % 10_000) / 10_000, 10 + (n * 31) % 9000) for n in range(10_000)
    ]
    given = study(trials, selected=frozenset({5, 17}))
    figure = checked(front_figure(given))
    numbers = drawn(figure).keys()
    assert given.on_front | {5, 17} <= numbers
    assert MOST_POINTS <= len(numbers) <= MOST_POINTS + len(given.on_front) + 2
    left = 10_000 - len(numbers)
    assert f"{left:,} that others dominate are left out" in figure["layout"]["meta"]["caption"]
    gaps = sorted(numbers)
    assert max(b - a for a, b in pairwise(gaps)) <= 10_000 / MOST_POINTS + 2, "thinned evenly"
    lines = checked(parallel_figure(given, {n: {"d": n} for n in range(10_000)}))
    told = {n for trace in lines["data"] for n in trace.get("customdata", ()) if n is not None}
    assert given.on_front | {5, 17} <= told
    assert len(told) <= MOST_LINES + len(given.on_front) + 2


def test_a_front_of_200_trials_is_small_on_its_way() -> None:
    trials = [summary(n, (n * 7 % 200) / 200, 100 + n * 3, throughput=9.0 + n) for n in range(200)]
    given = study(trials, own=("quality", "parameters", "throughput"), noise=Noise(400))
    assert len(gzip.compress(json.dumps(front_figure(given)).encode())) <= 40 << 10


def test_selected_trials_stand_out_in_every_trace() -> None:
    trials = [summary(n, 0.5 + n / 100, 100 + n) for n in range(6)]
    figure = front_figure(study(trials, selected=frozenset({1, 4})))
    chosen = {
        trace["customdata"][place]
        for trace in figure["data"]
        if "customdata" in trace
        for place in trace["selectedpoints"]
    }
    assert chosen == {1, 4}


def test_a_conditional_hyperparameter_leaves_a_gap_and_a_log_space_a_log_axis() -> None:
    trials = [summary(n, 0.5 + n / 100, 100 + n) for n in range(3)]
    given = {0: {"lr": 0.001, "d": 2}, 1: {"lr": 0.1}, 2: {"lr": 0.01, "d": 4}}
    figure = checked(parallel_figure(study(trials), given, logarithmic=frozenset({"lr"})))
    names = figure["layout"]["xaxis"]["ticktext"]
    assert names[2:4] == ["lr (log)", "d"]
    places = {
        (number, x): y
        for trace in figure["data"]
        for number, x, y in zip(trace.get("customdata", ()), trace["x"], trace["y"], strict=False)
    }
    assert [places[n, 2] for n in range(3)] == pytest.approx([0, 1, 0.5])
    assert [places[n, 3] for n in range(3)] == [0, None, 1]
    assert all(trace["connectgaps"] is False for trace in figure["data"] if "customdata" in trace)


def epoch(number: int, **given: Any) -> MetricRecord:
    usual = MetricRecord(
        epoch=number,
        train_loss=0.5,
        validation=0.25,
        spectral_margin=None,
        gradient_first=None,
        gradient_last=None,
        recovered_batches=0,
        seconds=2.0,
        attempt=1,
    )
    return replace(usual, **given)


def test_curves_have_a_panel_for_what_is_known_over_epochs_or_seconds() -> None:
    rows = [epoch(n, spectral_margin=0.004) for n in (1, 2, 3)]
    figure = checked(curves_figure({3: rows, 9: []}, metric="accuracy"))
    assert [trace["x"] for trace in figure["data"]] == [[1.0, 2.0, 3.0]] * 3
    assert {trace["customdata"][0] for trace in figure["data"]} == {3}
    assert "Without an epoch yet: trial 9." in figure["layout"]["meta"]["caption"]
    some = checked(curves_figure({3: rows}, metric="accuracy", left_out=8))
    assert "Drawn are 1 of 9 trials" in some["layout"]["meta"]["caption"]
    # A margin of singular values is never below 0, and neither is its axis.
    assert figure["layout"]["yaxis3"]["rangemode"] == "nonnegative"
    seconds = curves_figure({3: rows}, metric="accuracy", across="seconds")
    assert seconds["data"][0]["x"] == [2.0, 4.0, 6.0]
    nothing = checked(curves_figure({9: []}, metric="accuracy"))
    assert "has trained an epoch yet" in nothing["layout"]["meta"]["caption"]
    assert not nothing["data"]


def test_the_loss_on_validation_data_has_a_panel_unless_it_is_the_metric() -> None:
    beside, same = epoch(1, validation_loss=0.75), epoch(1, validation_loss=0.25)
    figure = checked(curves_figure({3: [beside]}, metric="accuracy"))
    panels = [note["text"] for note in figure["layout"]["annotations"]]
    assert "validation loss" in panels
    assert [trace["y"] for trace in figure["data"]] == [[0.25], [0.5], [0.75]]
    alone = checked(curves_figure({3: [same]}, metric="mse"))
    assert [trace["y"] for trace in alone["data"]] == [[0.25], [0.5]]


def test_growth_is_a_step_for_each_change_up_to_now() -> None:
    changes = [
        HypervolumePoint(
            trial=n,
            epochs_trained=10 * n,
            wall_seconds=1.0,
            at=datetime(2026, 3, 1, tzinfo=UTC),
            hypervolume=n / 4,
            points=n,
        )
        for n in (1, 2)
    ]
    figure = checked(growth_figure(changes, epochs_trained=40))
    (line,) = figure["data"]
    assert (line["x"], line["y"]) == ([10, 20, 40], [0.25, 0.5, 0.5])
    assert line["line"]["shape"] == "hv"
    assert not checked(growth_figure(changes[:1], epochs_trained=40))["data"]


def test_a_dimension_of_few_trials_or_of_none_on_the_front_is_grey_and_not_ranked() -> None:
    dimensions = tuple(
        DimensionImportance(
            dimension=name, importance=share, trials=count, trend=None, medians=None
        )
        for name, share, count in (("few", 0.5, 4), ("away", 0.3, 40), ("d", 0.2, 40))
    )
    found = ObjectiveImportance(
        objective=INFOS["quality"], trials=40, best_share=0.1, reason=None, dimensions=dimensions
    )
    figure = checked(importance_figure([found], {"d": 3, "few": 2}))
    (bars,) = figure["data"]
    assert bars["y"] == ["d (40)", "away (40, none on the front)", "few (4, too few trials)"]
    assert bars["marker"]["color"][1] == bars["marker"]["color"][2] != bars["marker"]["color"][0]
    assert "not ranked" in figure["layout"]["meta"]["caption"]


def test_fronts_of_studies_have_a_colour_each() -> None:
    one = study([summary(0, 0.9, 100), summary(1, 0.95, 200), summary(2, 0.5, 300)])
    figure = checked(compare_figure([("a <b>", one), ("b", study([summary(0, 0.7, 50)]))]))
    marks = [trace for trace in figure["data"] if trace["mode"] == "markers"]
    assert [trace["name"] for trace in marks] == ["a &lt;b&gt;", "b"]
    assert marks[0]["customdata"] == [0, 1]
    assert marks[0]["marker"]["color"] != marks[1]["marker"]["color"]


@given(st.sets(st.integers(0, 5000), max_size=60))
def test_numbers_are_written_as_ranges_and_read_again(numbers: set[int]) -> None:
    assert read_numbers(write_numbers(numbers)) == tuple(sorted(numbers))


@pytest.mark.parametrize("words", ["x", "3-", "5-2", "0-99999", "-1"])
def test_what_names_no_trials_is_refused(words: str) -> None:
    with pytest.raises(ValueError, match=r"allowed|at most"):
        read_numbers(words)
