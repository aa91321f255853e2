"""A model's throughput, measured in turn with its dense baseline so that noise hits both alike."""

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from pydantic import Field

from models.backends.vendor import tf32_allowed
from models.report import parameter_report
from models.spec import Spec
from search.documents.runtimes import Mode, RuntimeName
from search.measuring.devices import device_model, driver_version
from search.measuring.runtimes import RUNTIMES, Subject
from search.measuring.timing import (
    WARM_UP_ROUNDS,
    Clock,
    Estimate,
    Timed,
    estimate,
    ratio_of,
    timed_in_turn,
)
from search.training.jobs import AnyMeasureJob, MeasureJob, MeasurementReport, Shape


class ThroughputRecord(Spec):
    """One measurement with its circumstances."""

    device: str = Field(description="the device's model")
    driver: str | None = Field(description="the GPU driver's version; null on a CPU")
    torch_version: str
    threads: int = Field(description="CPU threads of an operation")
    mode: Mode = Field(
        description="inference: forward; training: forward, backward and the optimizer's step"
    )
    batch_size: int
    sequence_length: int
    dtype: str
    evaluation_form: tuple[str, ...] = Field(
        description="in which forms the structured weights were applied"
    )
    backend: tuple[str, ...] = Field(
        default=(),
        description="what ran the model: cpp, our kernels; vendor, torch's own recurrent kernels; "
        "graph, steps in CUDA graphs; torch, its single operations; onnxruntime; c, a compiled C "
        "file, which takes the samples of a batch one after the other; empty in older records",
    )
    dense_backend: tuple[str, ...] = Field(
        default=(),
        description="what ran the dense baseline: the faster one, where several kernels compute it",
    )
    tf32: bool | None = Field(
        default=None, description="whether a GPU's products may round to TF32; null on a CPU"
    )
    huge_pages: bool | None = Field(
        default=None,
        description="whether torch asked for huge pages of memory; null in older records",
    )
    clock: Clock = Field(
        description="thread: CPU time of the measuring thread; wall: time that passed; "
        "cuda: events on the device"
    )
    warm_up_rounds: int
    rounds: int
    repetitions: int = Field(description="calls in one timing of the model")
    dense_repetitions: int = Field(description="calls in one timing of the dense baseline")
    samples_per_second: Estimate
    dense_samples_per_second: Estimate
    ratio: Estimate = Field(
        description="the model's samples per second divided by the dense baseline's, round by "
        "round; above 1 the model is faster; exactly 1 for a dense model"
    )
    parameters: int
    dense_parameters: int
    multiply_adds: int = Field(description="of the matrix products, per sample and step")
    dense_multiply_adds: int
    load_average: float = Field(description="processes that wanted to run, in the minute before")
    runtime: RuntimeName = Field(
        default="reflectory", description="what ran the model and its dense baseline"
    )
    runtime_version: str | None = Field(default=None, description="null in older records")
    compiler: str | None = Field(
        default=None,
        description="what compiled the model's file: its name, version and flags; null where "
        "nothing did",
    )
    form: str | None = Field(
        default=None,
        description="how the weights of a recurrence stand in the file that was run: node, in an "
        "operator of the runtime; loop, as they are applied step by step; null where no file was",
    )
    calls: int | None = Field(
        default=None, description="single calls that were timed; null where latency does not count"
    )
    latency_p50: float | None = Field(
        default=None, description="seconds of a single call, wall time, the median"
    )
    latency_p99: float | None = Field(
        default=None, description="seconds that 99 of 100 single calls took at most"
    )
    dense_latency_p50: float | None = Field(
        default=None, description="the same of the dense baseline, timed in turn"
    )
    dense_latency_p99: float | None = None


def measure(
    job: MeasureJob,
    *,
    device: torch.device | str = "cpu",
    alone: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Generator[MeasurementReport]:
    """Measure the shapes of a job one after the other, each in turn with its dense baseline.

    `alone` holds the device for as long as something is timed: models are built before, and what
    was found is given out after it. Inputs and parameters are random with a fixed seed. A
    timing lasts 0.5 ms at least (3 ms on a GPU and for several threads); a round times both models
    in random order. Rounds go on for 0.03 seconds or longer, and every tenth round it is looked
    whether the ratio's interval is narrower than 3% to either side; after 500 rounds or 1.5 seconds
    it is what it is, of 10 rounds at least. The baseline runs on the vendor's kernels or on ours,
    whichever were faster in a few timings beforehand. A dense model is its own baseline and is
    measured by itself, on what it would run on anyway. Where latency counts, 1,000 single calls of
    each are timed after that, in turn: fewer, but 100 at least, where these take over 10 seconds.

    Raises:
        ModelError: A model cannot be built, or its runtime cannot run it.
    """
    device = torch.device(device)
    threads_before = torch.get_num_threads()
    torch.set_num_threads(job.threads)
    try:
        for shape in job.shapes:
            record, seconds = _measure_shape(shape, job, device=device, alone=alone)
            yield report_of(record, trial=shape.trial, shape_key=shape.shape_key, seconds=seconds)
    finally:
        torch.set_num_threads(threads_before)


def _measure_shape(
    shape: Shape,
    job: MeasureJob,
    *,
    device: torch.device,
    alone: Callable[[], AbstractContextManager[None]],
) -> tuple[ThroughputRecord, float]:
    """The record, and how many seconds the device was held for it."""
    baseline = shape.model.dense_twin()
    load_average = os.getloadavg()[0]
    runtime = RUNTIMES[job.runtime]
    own = runtime.subjects(shape.model, job, device)
    rivals: Sequence[Subject] = (
        () if baseline == shape.model.unrounded else runtime.rivals(baseline, job, device)
    )
    timed = timed_in_turn(
        own, rivals, device=device, threads=job.threads, alone=alone, latency=job.latency
    )
    report = parameter_report(shape.model)
    record = ThroughputRecord(
        **circumstances(timed, job, device=device, load_average=load_average),
        sequence_length=job.steps_of(shape),
        parameters=report.totals.parameters,
        dense_parameters=report.dense_twin.parameters,
        multiply_adds=report.totals.multiply_adds,
        dense_multiply_adds=report.dense_twin.multiply_adds,
        runtime_version=runtime.version(),
        compiler=runtime.compiler(),
    )
    return record, timed.held_seconds


def circumstances(
    timed: Timed, job: AnyMeasureJob, *, device: torch.device, load_average: float
) -> dict[str, Any]:
    """What a record says of what was timed, and how, whatever it was."""
    return {
        "device": device_model(device),
        "driver": driver_version(device),
        "torch_version": torch.__version__,
        "threads": job.threads,
        "mode": job.mode,
        "batch_size": job.batch_size,
        "dtype": timed.subject.dtype,
        "evaluation_form": timed.subject.evaluation_form,
        "backend": timed.subject.backend,
        "dense_backend": timed.baseline.backend,
        "tf32": tf32_allowed() if device.type == "cuda" else None,
        "huge_pages": os.environ.get("THP_MEM_ALLOC_ENABLE") == "1",
        "clock": timed.clock,
        "warm_up_rounds": WARM_UP_ROUNDS,
        "rounds": len(timed.seconds),
        "repetitions": timed.repetitions,
        "dense_repetitions": timed.baseline_repetitions,
        "samples_per_second": estimate([job.batch_size / pair[0] for pair in timed.seconds]),
        "dense_samples_per_second": estimate([job.batch_size / pair[1] for pair in timed.seconds]),
        "ratio": ratio_of(timed.seconds),
        "load_average": load_average,
        "runtime": job.runtime,
        "form": timed.subject.form,
        **({} if timed.calls is None else _latencies(*timed.calls)),
    }


def report_of(
    record: ThroughputRecord, *, trial: int, shape_key: str, seconds: float
) -> MeasurementReport:
    """What is said of a measurement that held the device for so many seconds."""
    return MeasurementReport(
        trial=trial,
        shape_key=shape_key,
        device=record.device,
        samples_per_second=record.samples_per_second.median,
        ratio=record.ratio.median,
        latency_p50=record.latency_p50,
        latency_p99=record.latency_p99,
        seconds=seconds,
        record=record.model_dump(mode="json"),
    )


def _latencies(own: Sequence[float], dense: Sequence[float]) -> dict[str, Any]:
    """Of single calls of both, in seconds."""
    return {
        "calls": len(own),
        "latency_p50": float(np.quantile(own, 0.5)),
        "latency_p99": float(np.quantile(own, 0.99)),
        "dense_latency_p50": float(np.quantile(dense, 0.5)),
        "dense_latency_p99": float(np.quantile(dense, 0.99)),
    }
