"""What the fork server does once, before its first fork, so that no attempt does it again."""

from pathlib import Path
from typing import Any

import pytest

from models.architectures import Gru
from models.kernels.library import library
from models.model import ModelSpec
from models.parametrizations import LowRank
from models.spec import Signature
from search.training.jobs import MeasureJob, MeasurementReport, Shape
from tests.search.agents.slots.harness import Slots, slots_in

MODEL = ModelSpec(
    architecture=Gru(hidden_size=8),
    parametrization=LowRank(d=2),
    signature=Signature(input_size=2, sequence_length=3, output_size=2),
)
JOB = MeasureJob(shapes=(Shape(trial=0, shape_key="shape", model=MODEL),), batch_size=2)


def measure(slots: Slots, attempt: str) -> dict[str, Any]:
    """The record of a measuring attempt that came to its good end."""
    assert slots.do(attempt, JOB).returncode == 0, slots.log(attempt)
    (report,) = slots.of(attempt).bodies(MeasurementReport)
    return report.record


@pytest.mark.skipif(library() is None, reason="no C++ compiler here")
def test_kernels_are_built_before_the_first_attempt_and_never_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = tmp_path / "kernels"
    monkeypatch.setenv("REFLECTORY_KERNEL_CACHE", str(kernels))
    with slots_in(tmp_path) as slots:
        records = [measure(slots, "a1")]
        (built,) = kernels.glob("*.so")
        # A process that looked for the library itself would now build another.
        built.unlink()
        slots.processes.retire_idle(0.0)
        records.append(measure(slots, "a2"))
    assert list(kernels.glob("*.so")) == []
    assert [record["backend"] for record in records] == [["cpp"], ["cpp"]]
    # The dense baseline's memory is asked for like the model's: all in one process.
    assert [record["huge_pages"] for record in records] == [True, True]


def test_a_missing_compiler_is_said_once_and_stops_no_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("REFLECTORY_KERNEL_CACHE", str(tmp_path / "kernels"))
    with slots_in(tmp_path) as slots:
        records = []
        for attempt in ("a1", "a2"):
            records.append(measure(slots, attempt))
            slots.processes.retire_idle(0.0)
        assert "no CPU kernels" not in slots.log("a2")
    said = (tmp_path / "logs" / "fork-server.stderr.log").read_text()
    assert said.count("no CPU kernels") == 1
    assert "no-such-compiler" in said
    assert [record["backend"] for record in records] == [["torch"], ["torch"]]
