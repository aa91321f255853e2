"""The benchmark runs, and finds that everything it times computes the same."""

import re
import subprocess
import sys
from pathlib import Path

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


def test_a_quick_benchmark_times_and_checks_every_contestant(tmp_path: Path) -> None:
    out = tmp_path / "report.md"
    text = report_of("sequences", "--out", str(out))
    assert out.read_text() == text
    assert "wrong" not in text.partition("## Cases")[2]
    assert "failed" not in text
    for contestant in (
        "torch.nn",
        "ours",
        "ours, dense twin",
        "torch's kernel on our W",
        "ours, torch backend",
        "loop over reflectors",
    ):
        row = re.search(rf"\| {re.escape(contestant)} \| \w* \| ([\d.]+) ", text)
        assert row is not None, contestant
        assert float(row[1]) > 0


def test_a_quick_comparison_of_forms_ends_with_rules() -> None:
    text = report_of("forms")
    assert re.search(r"^\| as it is now \| [\d.]+% \| \d+% \|$", text, re.MULTILINE)
