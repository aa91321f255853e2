"""The benchmark of networks of others says what was found, what is missed first."""

import dataclasses
import importlib.util
from pathlib import Path

import pytest

from search.graphs.fine_tune import FineTune
from search.graphs.metrics import Agreement, Kl
from tests.benchmarks.networks.beside import OURS, OURS_OF_4, Quality
from tests.benchmarks.networks.case import Case, Further, Skipped, Wanted, packaged
from tests.benchmarks.networks.runtime_quantizers import FROM_RUNTIME
from tests.benchmarks.networks.study import Found, searched
from tests.benchmarks.networks.tables import section
from tests.benchmarks.networks.targets import target_lines
from tests.benchmarks.networks.toolkits import FROM_TOOLKITS
from tests.benchmarks.networks.trained_further import (
    OnTest,
    further_lines,
    further_targets,
    trained_further,
)
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
    beside = found.beside
    for name in (OURS, OURS_OF_4, *FROM_RUNTIME):
        one = beside.tools[name]
        assert isinstance(one, Quality), (name, one)
        assert 0 < one.loss < 1
        assert name in beside.speeds
    assert beside.tools.keys() == {OURS, OURS_OF_4, *FROM_RUNTIME, *FROM_TOOLKITS}


def test_a_tool_that_is_not_installed_is_said_not_to_be(found: Found) -> None:
    for package, name in (("nncf", "NNCF, quantize"), ("olive", "Olive, blocks of 4 bits")):
        if importlib.util.find_spec(package) is None:
            assert found.beside.tools[name] == f"{package} is not installed"


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


def test_a_file_that_is_trained_further_has_a_line_and_a_target() -> None:
    how = Further(left=0.6, how=FineTune(epochs=6), decided=0.999)
    case = dataclasses.replace(CASE, further=how)
    found = trained_further(case, how, rounds=2)
    assert 0.2 < found.left <= 0.6
    assert found.samples == (96, 16, 48)
    assert isinstance(found.after, OnTest)
    assert found.after.loss < 0.9 * found.before.loss
    assert found.after.bytes == found.before.bytes
    assert found.told is not None
    assert found.told.best_epoch > 0
    assert "| small | 0." in "\n".join(further_lines([(case, how, found)]))
    ((met, text),) = further_targets(case, how, found)
    assert met == (found.after.decided.value >= 0.999)
    assert f"wanted: 99.9 % at {how.left}" in text
    # Without training, nothing but the file itself is held against what is wanted.
    ((met, _),) = further_targets(case, how, dataclasses.replace(found, after="no gradient"))
    assert met == (found.before.decided.value >= 0.999)


def test_a_network_that_is_not_there_is_skipped(tmp_path: Path) -> None:
    with pytest.raises(Skipped, match="no wheel of magika"):
        packaged(tmp_path, "magika", "model.onnx", "0" * 64)
