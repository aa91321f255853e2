import json
import math
import time
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor, nn

from models.architectures import AnyArchitecture, Gru, Lstm, Mlp, Rnn
from models.errors import SlotError
from models.kernels.library import library
from models.model import ModelSpec
from models.parametrizations import Dense, HouseholderSvd, LowRank, PackedRotations
from models.spec import Signature
from search.measuring.devices import device_model
from search.measuring.throughput import Estimate, ThroughputRecord, estimate, measure
from search.training.jobs import MeasureJob, MeasurementReport, Shape

SIGNATURE = Signature(input_size=8, sequence_length=6, output_size=10)


OURS = "torch" if library() is None else "cpp"


def spec(architecture: AnyArchitecture, parametrization: object) -> ModelSpec:
    return ModelSpec.model_validate(
        {"architecture": architecture, "parametrization": parametrization, "signature": SIGNATURE}
    )


DENSE = spec(Rnn(hidden_size=32), Dense())
SPECTRAL = spec(Rnn(hidden_size=32), HouseholderSvd(m1=3, m2=3))


def job(*models: ModelSpec, **changes: object) -> MeasureJob:
    shapes = tuple(
        Shape(trial=number, shape_key=f"shape-{number}", model=model)
        for number, model in enumerate(models)
    )
    return MeasureJob.model_validate({"shapes": shapes, "batch_size": 4, **changes})


def only(reports: Iterator[MeasurementReport]) -> tuple[MeasurementReport, ThroughputRecord]:
    (report,) = reports
    return report, ThroughputRecord.model_validate(report.record)


@given(st.lists(st.floats(1e-3, 1e6), min_size=6, max_size=80))
def test_the_interval_is_scipys_interval_of_the_median(values: list[float]) -> None:
    found = estimate(values)
    oracle = stats.quantile_test(values, q=0, p=0.5).confidence_interval(0.95)
    assert found.median == pytest.approx(float(np.median(values)), rel=1e-12)
    assert found.low == oracle.low
    assert found.high == oracle.high
    assert found.low <= found.median <= found.high


@pytest.mark.parametrize("count", [0, 1, 5])
def test_too_few_values_give_no_interval(count: int) -> None:
    assert math.isnan(stats.quantile_test(list(range(5)), q=0, p=0.5).confidence_interval().low)
    with pytest.raises(ValueError, match=f"{count} values give no 95% interval"):
        estimate([1.0] * count)


def test_a_dense_model_is_its_own_baseline() -> None:
    report, record = only(measure(job(DENSE)))
    assert report.ratio == 1
    assert record.ratio == Estimate(median=1, low=1, high=1)
    assert record.samples_per_second == record.dense_samples_per_second
    assert record.parameters == record.dense_parameters


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize("model", [SPECTRAL, spec(Gru(hidden_size=24), LowRank(d=3))])
def test_a_record_names_its_circumstances(model: ModelSpec, mode: str) -> None:
    report, record = only(measure(job(model, mode=mode, batch_size=3, sequence_length=5)))
    assert report.device == record.device == device_model("cpu")
    assert (report.trial, report.shape_key) == (0, "shape-0")
    assert report.samples_per_second == record.samples_per_second.median
    assert report.ratio == record.ratio.median
    assert report.seconds > 0
    assert record.driver is None
    assert record.torch_version == torch.__version__
    assert (record.mode, record.batch_size, record.sequence_length) == (mode, 3, 5)
    assert (record.threads, record.dtype, record.clock) == (1, "float32", "thread")
    assert 10 <= record.rounds <= 500
    assert record.repetitions >= 1
    assert record.dense_repetitions >= 1
    assert record.load_average >= 0
    for numbers in (record.ratio, record.samples_per_second, record.dense_samples_per_second):
        assert 0 < numbers.low <= numbers.median <= numbers.high

    def count(built: ModelSpec) -> int:
        return sum(p.numel() for p in built.build(seed=0).parameters())

    assert record.parameters == count(model)
    assert record.dense_parameters == count(model.dense_twin())
    assert record.multiply_adds > 0
    assert record.evaluation_form
    assert record.backend == (OURS,)
    assert record.dense_backend in {(OURS,), ("vendor",)}
    assert record.tf32 is None
    assert record.huge_pages is False


def test_the_baseline_has_one_multiply_add_per_weight_of_its_matrices() -> None:
    _, record = only(measure(job(SPECTRAL)))
    assert record.dense_multiply_adds == 32 * 32 + 32 * 8 + 10 * 32


def test_the_ratio_agrees_with_the_two_medians() -> None:
    _, record = only(measure(job(SPECTRAL, mode="training")))
    of_medians = record.samples_per_second.median / record.dense_samples_per_second.median
    assert record.ratio.median == pytest.approx(of_medians, rel=0.3)


def test_equal_work_gives_a_ratio_near_one() -> None:
    # At this size rotations are applied as the matrix that they make up, made once.
    rotations = spec(Rnn(hidden_size=32), PackedRotations(count=2))
    _, record = only(measure(job(rotations, batch_size=32)))
    assert record.evaluation_form == ("dense",)
    assert record.ratio.median == pytest.approx(1, abs=0.3)


def test_a_fraction_of_the_work_is_faster() -> None:
    thin = spec(Rnn(hidden_size=512), LowRank(d=4))
    _, record = only(measure(job(thin, batch_size=20)))
    assert record.evaluation_form == ("low_rank",)
    assert record.multiply_adds < record.dense_multiply_adds / 10
    assert record.ratio.low > 1.3


def test_a_record_names_the_form_that_what_ran_applies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stages of rotations are our kernels' alone: a loop in torch multiplies by the matrix."""
    rotations = spec(Rnn(hidden_size=64), PackedRotations(count=3))
    _, record = only(measure(job(rotations)))
    assert record.evaluation_form == ("rotations" if record.backend == ("cpp",) else "dense",)
    monkeypatch.setenv("REFLECTORY_BACKEND", "torch")
    _, record = only(measure(job(rotations)))
    assert (record.backend, record.evaluation_form) == (("torch",), ("dense",))


def test_a_record_from_before_it_named_what_ran_is_still_read() -> None:
    report, _ = only(measure(job(DENSE)))
    later = {"backend", "dense_backend", "tf32", "huge_pages"}
    old = {name: value for name, value in report.record.items() if name not in later}
    assert len(old) == len(report.record) - len(later)
    record = ThroughputRecord.model_validate_json(json.dumps(old))
    assert (record.backend, record.dense_backend) == ((), ())
    assert (record.tf32, record.huge_pages) == (None, None)


def test_what_torchs_operations_run_is_named_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REFLECTORY_BACKEND", "torch")
    for model in (SPECTRAL, spec(Lstm(hidden_size=8, peephole=True), LowRank(d=2))):
        _, record = only(measure(job(model)))
        assert (record.backend, record.dense_backend) == (("torch",), ("torch",))


def seconds_of_a_training_step(module: nn.Module, x: Tensor) -> float:
    """Forward and backward."""
    module.zero_grad()
    begun = time.thread_time()
    module(x).sum().backward()
    return time.thread_time() - begun


@pytest.mark.skipif(library() is None, reason="no C++ compiler here")
@pytest.mark.parametrize(
    "architecture", [Lstm(hidden_size=256), Gru(hidden_size=64, reset="after")], ids=["lstm", "gru"]
)
def test_the_baseline_runs_on_whatever_is_faster_here(
    architecture: Lstm | Gru, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = spec(architecture, LowRank(d=3))
    _, record = only(measure(job(model, mode="training", batch_size=20)))
    module = model.dense_twin().build(seed=0)
    x = torch.rand(20, model.signature.sequence_length, model.signature.input_size)
    seconds: dict[tuple[str, ...], float] = {("cpp",): math.inf, ("vendor",): math.inf}
    # In turn, so that a slow moment is both backends'; the least of each.
    for backend in ("cpp", "vendor") * 15:
        monkeypatch.setenv("REFLECTORY_BACKEND", backend)
        assert module.backends(batch_size=20) == (backend,)
        step = seconds_of_a_training_step(module, x)
        seconds[backend,] = min(seconds[backend,], step)
    # A dense LSTM is a draw of up to 1.8, which noise may decide otherwise; of the GRU one takes
    # three times as long as the other.
    assert seconds[record.dense_backend] < 2 * min(seconds.values())


def test_measuring_leaves_no_preference_behind() -> None:
    baseline = SPECTRAL.dense_twin().build(seed=0)
    before = baseline.backends()
    list(measure(job(SPECTRAL, mode="training")))
    assert baseline.backends() == before


def test_feed_forward_models_are_measured_as_they_are_fused() -> None:
    folded = spec(Mlp(hidden_size=16), LowRank(d=2))
    _, record = only(measure(job(folded)))
    assert record.evaluation_form == ("dense",)
    assert record.backend == (OURS,)
    assert record.dense_backend in {(OURS,), ("torch",)}
    _, trained = only(measure(job(folded, mode="training")))
    assert trained.evaluation_form == ("low_rank",)


def test_shapes_are_measured_one_by_one_in_their_order() -> None:
    reports = list(measure(job(DENSE, SPECTRAL, DENSE)))
    assert [report.trial for report in reports] == [0, 1, 2]
    assert [report.shape_key for report in reports] == ["shape-0", "shape-1", "shape-2"]


def test_the_tasks_own_length_is_measured_unless_another_is_asked_for() -> None:
    _, record = only(measure(job(DENSE)))
    assert record.sequence_length == 6


def test_threads_are_as_asked_for_and_as_before_afterwards() -> None:
    before = torch.get_num_threads()
    other = 2 if before == 1 else 1
    reports = measure(job(DENSE, DENSE, threads=other))
    next(reports)
    assert torch.get_num_threads() == other
    reports.close()
    assert torch.get_num_threads() == before


def test_several_threads_are_timed_by_the_wall() -> None:
    _, record = only(measure(job(DENSE, threads=2)))
    assert (record.threads, record.clock) == (2, "wall")


def test_a_model_that_cannot_be_built_is_refused() -> None:
    with pytest.raises(SlotError):
        list(measure(job(spec(Rnn(hidden_size=8), LowRank(d=100)))))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("mode", ["inference", "training"])
def test_a_gpu_is_timed_by_its_own_events(mode: str) -> None:
    _, record = only(measure(job(SPECTRAL, mode=mode), device="cuda"))
    assert record.clock == "cuda"
    assert record.device == torch.cuda.get_device_name()
    assert record.driver
    assert record.backend
    assert record.tf32 in {True, False}
    assert record.samples_per_second.median > 0
