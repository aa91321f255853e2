"""Speeds that are predicted, compared with what was measured.

`measured_shapes.json` has real measurements of one CPU by this project: samples per second of
random shapes of three tasks, and their ratios to the dense baseline.
"""

import json
import math
import random
import statistics
from pathlib import Path
from typing import Any

import pytest

from models.model import ModelSpec
from search.measuring.prediction import (
    LEAST_SHAPES,
    ShapeFacts,
    SpeedModel,
    baseline_facts,
    facts_of,
)

TASKS = ("digits", "addition", "mnist")
QUANTITIES = ("samples_per_second", "ratio")
_SPLITS = 24


@pytest.fixture(scope="module")
def measured() -> dict[str, list[tuple[ShapeFacts, dict[str, Any]]]]:
    """The facts of each measured shape, and what was measured of it."""
    tasks: dict[str, Any] = json.loads(
        Path(__file__).with_name("measured_shapes.json").read_text(encoding="utf-8")
    )
    return {
        name: [(facts_of(ModelSpec.model_validate(row["model"])), row) for row in rows]
        for name, rows in tasks.items()
    }


def tried(
    rows: list[tuple[ShapeFacts, dict[str, Any]]], quantity: str, learned: int
) -> tuple[float, float, float]:
    """Over splits: the share within the interval, the median error, the median half width."""
    inside: list[bool] = []
    errors: list[float] = []
    widths: list[float] = []
    for split in range(_SPLITS):
        mixed = random.Random(split).sample(rows, len(rows))
        known, unknown = mixed[:learned], mixed[learned:]
        model = SpeedModel([facts for facts, _ in known], [row[quantity] for _, row in known])
        for (_, row), told in zip(unknown, model.predict([f for f, _ in unknown]), strict=True):
            assert 0 < told.low < told.value < told.high
            inside.append(told.low <= row[quantity] <= told.high)
            errors.append(abs(math.log(told.value / row[quantity])))
            widths.append(math.log(told.high / told.value))
    return statistics.mean(inside), statistics.median(errors), statistics.median(widths)


@pytest.mark.parametrize("quantity", QUANTITIES)
@pytest.mark.parametrize("task", TASKS)
def test_nine_of_ten_measurements_lie_in_the_interval(
    measured: dict[str, list[tuple[ShapeFacts, dict[str, Any]]]], task: str, quantity: str
) -> None:
    for learned in (LEAST_SHAPES, 20, 40):
        inside, _, _ = tried(measured[task], quantity, learned)
        assert inside >= 0.9, (task, quantity, learned)


@pytest.mark.parametrize("task", TASKS)
def test_more_shapes_predict_better_than_their_middle_does(
    measured: dict[str, list[tuple[ShapeFacts, dict[str, Any]]]], task: str
) -> None:
    rows = measured[task]
    logs = [math.log(row["samples_per_second"]) for _, row in rows]
    by_middle = statistics.median(abs(one - statistics.median(logs)) for one in logs)
    _, few, wide = tried(rows, "samples_per_second", LEAST_SHAPES)
    _, many, narrow = tried(rows, "samples_per_second", 40)
    assert many < few < by_middle
    assert many < by_middle / 3
    assert narrow < wide


@pytest.mark.parametrize("task", TASKS)
def test_the_baselines_that_are_measured_too_narrow_the_interval(
    measured: dict[str, list[tuple[ShapeFacts, dict[str, Any]]]], task: str
) -> None:
    inside: list[bool] = []
    alone: list[float] = []
    both: list[float] = []
    for split in range(_SPLITS):
        mixed = random.Random(split).sample(measured[task], len(measured[task]))
        known, unknown = mixed[:LEAST_SHAPES], mixed[LEAST_SHAPES:]
        shapes = [facts for facts, _ in known]
        speeds = [row["samples_per_second"] for _, row in known]
        for _, row in known:
            facts = baseline_facts(ModelSpec.model_validate(row["model"]))
            if facts is not None:
                shapes.append(facts)
                speeds.append(row["samples_per_second"] / row["ratio"])
        asked = [facts for facts, _ in unknown]
        few = SpeedModel(shapes[:LEAST_SHAPES], speeds[:LEAST_SHAPES]).predict(asked)
        many = SpeedModel(shapes, speeds).predict(asked)
        alone += [one.high / one.value for one in few]
        both += [one.high / one.value for one in many]
        inside += [
            one.low <= row["samples_per_second"] <= one.high
            for one, (_, row) in zip(many, unknown, strict=True)
        ]
    assert statistics.mean(inside) >= 0.9
    assert statistics.median(both) < 0.95 * statistics.median(alone)


@pytest.mark.parametrize("task", TASKS)
def test_what_a_shape_and_its_baseline_have_in_common_narrows_the_interval(
    measured: dict[str, list[tuple[ShapeFacts, dict[str, Any]]]], task: str
) -> None:
    """As on a machine that is slower at some times than at others."""
    inside: list[bool] = []
    apart: list[float] = []
    told: list[float] = []
    for split in range(_SPLITS // 3):
        chance = random.Random(split)
        mixed = chance.sample(measured[task], len(measured[task]))
        slowed = [(facts, row, math.exp(chance.gauss(0.0, 0.25))) for facts, row in mixed]
        known, unknown = slowed[:25], slowed[25:]
        shapes = [facts for facts, _, _ in known]
        speeds = [row["samples_per_second"] * by for _, row, by in known]
        times = [*range(len(known))]
        for time, (_, row, by) in enumerate(known):
            facts = baseline_facts(ModelSpec.model_validate(row["model"]))
            if facts is not None:
                shapes.append(facts)
                speeds.append(row["samples_per_second"] / row["ratio"] * by)
                times.append(time)
        asked = [facts for facts, _, _ in unknown]
        wide = SpeedModel(shapes, speeds).predict(asked)
        narrow = SpeedModel(shapes, speeds, together=times).predict(asked)
        apart += [math.log(one.high / one.value) for one in wide]
        told += [math.log(one.high / one.value) for one in narrow]
        inside += [
            one.low <= row["samples_per_second"] * by <= one.high
            for one, (_, row, by) in zip(narrow, unknown, strict=True)
        ]
    assert statistics.mean(inside) >= 0.9
    assert statistics.median(told) < 0.8 * statistics.median(apart)


def test_a_spoilt_measurement_moves_the_others_little(
    measured: dict[str, list[tuple[ShapeFacts, dict[str, Any]]]],
) -> None:
    rows = measured["digits"]
    known, unknown = rows[:30], [facts for facts, _ in rows[30:]]
    facts, values = [f for f, _ in known], [row["samples_per_second"] for _, row in known]
    right = SpeedModel(facts, values).predict(unknown)
    spoilt = SpeedModel(facts, [values[0] / 20, *values[1:]]).predict(unknown)
    off = [abs(math.log(one.value / other.value)) for one, other in zip(right, spoilt, strict=True)]
    # It is off by a factor of 20, whose logarithm is 3.
    assert statistics.median(off) < 0.15
    # And its model knows that something is wrong with what it learned from.
    assert statistics.median(one.high / one.value for one in spoilt) > statistics.median(
        one.high / one.value for one in right
    )


def test_the_same_measurements_predict_the_same(
    measured: dict[str, list[tuple[ShapeFacts, dict[str, Any]]]],
) -> None:
    facts = [f for f, _ in measured["mnist"]]
    values = [row["ratio"] for _, row in measured["mnist"]]
    one, other = (SpeedModel(facts[:20], values[:20]).predict(facts) for _ in range(2))
    assert one == other
    assert SpeedModel(facts[:20], values[:20]).predict([]) == []


def test_equal_speeds_are_predicted_to_stay_equal(
    measured: dict[str, list[tuple[ShapeFacts, dict[str, Any]]]],
) -> None:
    """As ratios of dense models are, which are their own baseline."""
    facts = [f for f, _ in measured["digits"]]
    for told in SpeedModel(facts[:12], [1.0] * 12).predict(facts[12:]):
        assert told.value == pytest.approx(1.0)


def test_few_shapes_predict_nothing(
    measured: dict[str, list[tuple[ShapeFacts, dict[str, Any]]]],
) -> None:
    facts = [f for f, _ in measured["digits"]][: LEAST_SHAPES - 1]
    with pytest.raises(ValueError, match=f"at least {LEAST_SHAPES}"):
        SpeedModel(facts, [1.0] * len(facts))


def test_what_differs_in_words_and_bits_alone_differs_in_options() -> None:
    document = {
        "architecture": {"kind": "rnn", "hidden_size": 8, "activation": "tanh"},
        "parametrization": {"kind": "low_rank_diagonal", "d": 2},
        "signature": {"input_size": 3, "sequence_length": 5, "output_size": 2},
    }
    model = ModelSpec.model_validate(document)
    relu = model.model_copy(
        update={"architecture": model.architecture.model_copy(update={"activation": "relu"})}
    )
    plain, other = facts_of(model), facts_of(relu)
    rounded = facts_of(model.model_copy(update={"bits": 8}))
    assert plain.sizes == other.sizes == rounded.sizes
    assert len({plain.options, other.options, rounded.options}) == 3
    assert (plain.architecture, plain.parametrization) == ("rnn", "low_rank_diagonal")
