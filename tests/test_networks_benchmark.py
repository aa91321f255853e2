"""The benchmark of networks of others says what was found, what is missed first."""

import dataclasses
from pathlib import Path

import pytest

from search.graphs.metrics import Agreement, Kl
from tests.benchmarks.networks.case import Case, Skipped, Wanted, packaged
from tests.benchmarks.networks.study import OURS, Found, Quality, searched
from tests.benchmarks.networks.tables import section
from tests.benchmarks.networks.targets import target_lines
from tests.search.graphs.small_networks import classifier, vectors

CASE = Case(
    title="small",
    original=classifier().SerializeToString(),
    arrays={"x": vectors()},
    metric=Kl(),
    decisions=Agreement(),
    outputs=("y",),
    data="Made up",
    trials=20,
    wanted=Wanted(ratio=5.8, decided=0.5, rough_ratio=None),
)


@pytest.fixture(scope="module")
def found() -> Found:
    return searched(CASE, seed=0, rounds=2)


def test_other_tools_take_part(found: Found) -> None:
    for name, one in found.tools.items():
        assert isinstance(one, Quality), (name, one)
        assert 0 < one.loss < 1
        assert name in found.speeds
    assert len(found.tools) == 5


def test_both_fronts_are_looked_at_by_bytes(found: Found) -> None:
    for front in (found.bits, found.all):
        for ratio, one in front.items():
            assert one is None or one.bytes <= len(CASE.original) / ratio
    assert found.trials == 20
    assert found.spearman > 0.9
    assert "bytes (predicted" in found.verified


def test_tables_have_all_that_was_found(found: Found) -> None:
    text = "\n".join(section(CASE, [found, found]))
    for words in (OURS, "quantize_static, QDQ", "| 5.8 |", "Spearman", "20 trials"):
        assert words in text


def test_targets_are_met_or_missed_by_the_figures(found: Found) -> None:
    lines = {text: met for met, text in target_lines(CASE, [found])}
    assert sum("wanted" in text for text in lines) == len(lines) >= 7
    wanted = CASE.wanted
    assert wanted is not None
    worse = dataclasses.replace(found, all={wanted.ratio: None})
    missed = [text for met, text in target_lines(CASE, [worse]) if not met]
    assert "small: 0.0 % decided at 5.8 times smaller (wanted: 50 %)" in missed


def test_a_network_that_is_not_there_is_skipped(tmp_path: Path) -> None:
    with pytest.raises(Skipped, match="no wheel of magika"):
        packaged(tmp_path, "magika", "model.onnx", "0" * 64)
