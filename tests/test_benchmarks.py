"""The benchmarks run, and what they time computes the same."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks import live_study
from tests.benchmarks.cpu import phases
from tests.benchmarks.cpu.cases import BOTH, QUICK, Mode
from tests.benchmarks.cpu.timing import timed
from tests.benchmarks.cpu.worker import measured

ROOT = Path(__file__).parents[1]


def report_of(module: str, *arguments: str) -> str:
    run = subprocess.run(
        [sys.executable, "-m", f"tests.benchmarks.{module}", "--cpu", "--quick", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.parametrize("mode", BOTH)
def test_every_contestant_with_our_parameters_computes_what_we_do(mode: Mode) -> None:
    rows = {row["name"]: row for row in measured(QUICK, mode, rounds=1)["rows"]}
    sharing = {"ours", "torch's kernel on our W", "ours, torch backend"}
    if mode == "train":
        sharing |= {"loop over reflectors", "loop over reflectors, lean"}
    assert rows.keys() == sharing | {"torch.nn", "ours, dense baseline"}
    assert {name for name, row in rows.items() if row["tolerable"]} == sharing


def test_ratios_are_those_of_the_work() -> None:
    numbers = list(range(20_000))
    timings = timed(
        {"once": lambda: sum(numbers), "four times": lambda: [sum(numbers) for _ in range(4)]},
        baseline="once",
        rounds=15,
    )
    assert timings["once"].ratio == 1
    assert 2 < timings["four times"].ratio < 8


def test_the_phases_of_a_step_are_all_of_it() -> None:
    rows = {row["name"]: row for row in phases.measured(QUICK, rounds=1)["rows"]}
    assert list(rows) == [
        *("whole step", "factors", "their gradients", "forward", "backward, data"),
        *("backward, weights", "optimizer", phases.REST, "inference"),
    ]
    shares = [row["share"] for row in rows.values() if row["name"] != "inference"]
    assert shares[0] == 1
    assert sum(shares[1:]) >= 0.99


def test_live_searches_are_compared_at_equal_processor_time() -> None:
    ends = {"freeze_thaw": (2, 3), "random": (2, 8), "tpe": (6, 12)}
    searches = [
        live_study.Search(
            sampler=name,
            seed=0,
            reference={"quality": 0.1, "parameters": 1000.0},
            begun=2,
            epochs=4,
            wall_seconds=20.0,
            # Half of the time trains; what was used before counts nothing.
            clock=[(100.0, 7.0, 3.0, 1.0), (120.0, 17.0, 5.0, 2.0)],
            complete=[(100.0 + 2 * first, 0.85, 100.0), (100.0 + 2 * last, 0.9, 100.0)],
        )
        for name, (first, last) in ends.items()
    ]
    told = live_study.report(searches)
    # Hypervolume is 0.75 and then 0.8 times one decade, from 0.8 on half as much and then all.
    assert "| freeze_thaw | 0.000 (0.000) | 0.938 (0.938) | 1.000 (1.000) | 1.000 (1.000) |" in told
    assert "| random | 0.000 (0.000) | 0.500 (0.500) | 0.500 (0.500) | 1.000 (1.000) |" in told
    assert "| tpe | 0.000 (0.000) | 0.000 (0.000) | 0.000 (0.000) | 0.938 (0.938) |" in told
    assert "| freeze_thaw | 0.38 (0.38) | 0.38 (0.38) |" in told
    assert "| tpe | 1.25 (1.25) | 1.25 (1.25) |" in told


@pytest.mark.slow
def test_a_quick_table_of_phases_has_every_phase() -> None:
    table = report_of("phases").partition("| case |")[2]
    assert f"| {QUICK.name} | whole step |" in table
    assert len(re.findall(r"^\|(?: [^|]* \|){8}$", table, re.MULTILINE)) >= 9


@pytest.mark.slow
def test_a_quick_benchmark_reports_its_case(tmp_path: Path) -> None:
    out = tmp_path / "report.md"
    text = report_of("sequences", "--out", str(out))
    assert out.read_text() == text
    cases = text.partition("## Cases")[2]
    assert "failed" not in cases
    assert "wrong" not in cases
    for mode in BOTH:
        assert f"| {QUICK.name}, {mode} (" in cases


@pytest.mark.slow
def test_a_quick_comparison_of_forms_ends_with_rules() -> None:
    text = report_of("forms")
    assert re.search(r"^\| as it is now \| [\d.]+% \| \d+% \|$", text, re.MULTILINE)


@pytest.mark.slow
def test_a_quick_comparison_of_structured_matrices_has_every_kind() -> None:
    text = report_of("structured")
    assert len(re.findall(r"^\| n \d+.* \|(?: [\d.]+ \|){6}$", text, re.MULTILINE)) == 3


@pytest.mark.slow
def test_a_quick_comparison_of_versions_has_both() -> None:
    text = report_of("versions", "--before", str(ROOT))
    row = r"^\| .*, (?:train|infer) \|(?: [\d.e-]+ \|){2} \**[\d.]+\** \[.*\] \|(?: \d+% \|){2}$"
    assert len(re.findall(row, text, re.MULTILINE)) == 2


@pytest.mark.nightly
def test_a_quick_comparison_of_libraries_has_those_that_run_here() -> None:
    text = report_of("libraries")
    assert len(re.findall(r"^\| spectral RNN n32, .* \|(?: [\d.]+ \[.*\] \|)+$", text, re.M)) == 4


@pytest.mark.slow
def test_a_quick_comparison_of_epochs_has_every_kind_of_trial() -> None:
    text = report_of("epochs")
    assert (
        len(re.findall(r"^\| (?:rnn|gru|lstm) \w+ \| [\d.]+ \| [\d.]+ \|", text, re.MULTILINE))
        == 12
    )


@pytest.mark.slow
def test_a_quick_table_of_c_files_has_every_form_and_bits() -> None:
    table = report_of("c_exports").partition("| n | form |")[2]
    assert len(re.findall(r"^\| 64 \| .* \| (?:32|8|4) \|", table, re.MULTILINE)) == 18
