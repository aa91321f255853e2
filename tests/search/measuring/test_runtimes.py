"""Runtimes: what they run is the model, and what they say of it."""

from typing import Any, get_args

import pytest
import torch

from models.architectures import ARCHITECTURES, Gru
from models.errors import ToolMissing
from models.example_input import example_input
from models.exports.c.export import export
from models.math.initialisation import generator_of
from models.model import ModelSpec
from models.parametrizations import Dense, Family, LowRank
from search.documents.runtimes import RUNTIME_KINDS, RuntimeName
from search.measuring.runtimes import RUNTIMES
from search.measuring.runtimes.c_files import CompiledBatch
from search.measuring.runtimes.runtime import Subject
from search.measuring.throughput import ThroughputRecord, measure
from search.measuring.timing import LATENCY_CALLS
from search.training.jobs import MeasureJob, Shape
from tests.conformance.model_specs import LAST, fitting, small, spec_of


def gru(size: int, parametrization: Family) -> ModelSpec:
    return ModelSpec.model_validate(
        {
            "architecture": Gru(hidden_size=size),
            "parametrization": parametrization,
            "signature": LAST,
        }
    )


def job_of(*models: ModelSpec, **fields: Any) -> MeasureJob:
    shapes = [
        Shape(trial=number, shape_key=f"shape-{number}", model=model)
        for number, model in enumerate(models)
    ]
    return MeasureJob.model_validate({"shapes": shapes, "batch_size": 3, **fields})


def test_every_runtime_has_a_name_and_code() -> None:
    assert set(RUNTIMES) == set(RUNTIME_KINDS) == set(get_args(RuntimeName))


@pytest.mark.parametrize(
    "model",
    [
        *(spec_of(small(variant), fitting(variant)[0]) for variant in ARCHITECTURES),
        spec_of(small(Gru), Dense, LAST.model_copy(update={"output_steps": "every"})),
        spec_of(small(Gru), Dense, LAST.model_copy(update={"vocabulary": 7})),
    ],
    ids=lambda model: f"{model.architecture.kind} {model.signature.output_steps}",
)
def test_what_is_timed_of_a_c_file_answers_each_sample(model: ModelSpec) -> None:
    """However often it is called: all answers of the batch are those of the model."""
    network = model.build(seed=0).eval()
    x = example_input(model.signature, batch=3, steps=5, generator=generator_of(3))
    batch = CompiledBatch(export(network, model), model, x)
    batch.run(2)
    with torch.no_grad():
        expected = network(x).reshape(batch.answers.shape)
    torch.testing.assert_close(batch.answers, expected, rtol=1e-4, atol=1e-5)
    assert len(batch.answers.unique(dim=0)) == 3


def test_repeated_calls_are_as_many_as_were_asked_for() -> None:
    called: list[int] = []
    one = Subject(lambda: called.append(1), (), (), "float32")
    one.calls(3)
    assert called == [1, 1, 1]
    several = Subject(lambda: None, (), (), "float32", repeated=called.append)
    several.calls(7)
    assert called[3:] == [7]


def test_a_record_of_c_files_says_what_compiled_and_ran_them() -> None:
    model = gru(16, LowRank(d=2))
    (report,) = measure(job_of(model, runtime="c", latency=True, batch_size=1))
    record = ThroughputRecord.model_validate(report.record)
    assert (record.runtime, record.backend, record.dense_backend) == ("c", ("c",), ("c",))
    assert record.runtime_version
    assert record.compiler is not None
    assert record.compiler.endswith("-std=c99 -O3 -march=native -fno-trapping-math")
    assert (record.form, record.threads, record.clock) == ("loop", 1, "thread")
    assert record.calls == LATENCY_CALLS
    assert record.latency_p50 is not None
    assert record.latency_p99 is not None
    assert 0 < record.latency_p50 <= record.latency_p99
    assert report.latency_p50 == record.latency_p50


def test_less_work_is_faster_in_c() -> None:
    """A matrix of 192 x 192 against one of rank 4: about a twentieth of the multiply-adds."""
    model = gru(192, LowRank(d=4))
    (report,) = measure(job_of(model, runtime="c"))
    assert report.ratio > 1.5


def test_a_machine_without_a_compiler_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(ToolMissing, match="no-such-compiler"):
        list(measure(job_of(gru(4, Dense()), runtime="c")))
