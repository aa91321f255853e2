"""What the fork server does once, before its first fork, so that no attempt does it again."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from models.architectures import Gru
from models.kernels.library import library
from models.model import ModelSpec
from models.parametrizations import LowRank
from models.spec import Signature
from search.agents.executors import AttemptTicket, LocalExecutor
from search.training.jobs import MeasureJob, MeasurementReport, Shape
from tests.search.agents.executors.attempts import SLOT, exits
from tests.search.attempt_api import TOKEN, AttemptApi

MODEL = ModelSpec(
    architecture=Gru(hidden_size=8),
    parametrization=LowRank(d=2),
    signature=Signature(input_size=2, sequence_length=3, output_size=2),
)
JOB = MeasureJob(shapes=(Shape(trial=0, shape_key="shape", model=MODEL),), batch_size=2)


@pytest.fixture
def api() -> Iterator[AttemptApi]:
    with AttemptApi(JOB) as api:
        yield api


def measure(api: AttemptApi, executor: LocalExecutor, folder: Path) -> None:
    """Run a measuring attempt to its good end."""
    ticket = AttemptTicket(
        url=api.url,
        attempt_id="a1",
        token=TOKEN,
        lease_seconds=60.0,
        device=SLOT.device,
        data=None,
        cache=folder / "cache",
        lock_folder=folder / "lock",
        threads=1,
    )
    executor.start(ticket, SLOT)
    (ended,) = exits(executor, 1)
    assert ended.returncode == 0, executor.log_path("a1").read_text()


def records(api: AttemptApi) -> list[dict[str, Any]]:
    return [report.record for report in api.bodies(MeasurementReport)]


@pytest.mark.skipif(library() is None, reason="no C++ compiler here")
def test_kernels_are_built_before_the_first_attempt_and_never_again(
    api: AttemptApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = tmp_path / "kernels"
    monkeypatch.setenv("REFLECTORY_KERNEL_CACHE", str(kernels))
    executor = LocalExecutor([SLOT], logs=tmp_path / "logs")
    try:
        measure(api, executor, tmp_path)
        (built,) = kernels.glob("*.so")
        # An attempt that looked for the library itself would now build another.
        built.unlink()
        measure(api, executor, tmp_path)
    finally:
        executor.close()
    assert list(kernels.glob("*.so")) == []
    assert [record["backend"] for record in records(api)] == [["cpp"], ["cpp"]]
    # The dense baseline's memory is asked for like the model's: all in one process.
    assert [record["huge_pages"] for record in records(api)] == [True, True]


def test_a_missing_compiler_is_said_once_and_stops_no_attempt(
    api: AttemptApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("REFLECTORY_KERNEL_CACHE", str(tmp_path / "kernels"))
    executor = LocalExecutor([SLOT], logs=tmp_path / "logs")
    try:
        for _ in range(2):
            measure(api, executor, tmp_path)
    finally:
        executor.close()
    said = (tmp_path / "logs" / "fork-server.stderr.log").read_text()
    assert said.count("no CPU kernels") == 1
    assert "no-such-compiler" in said
    assert "no CPU kernels" not in executor.log_path("a1").read_text()
    assert [record["backend"] for record in records(api)] == [["torch"], ["torch"]]
