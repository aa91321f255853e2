"""A model's throughput, measured in turn with its dense baseline so that noise hits both alike."""

import math
import os
import random
import statistics
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field

from models.backends.vendor import tf32_allowed
from models.report import parameter_report
from models.spec import Spec
from search.documents.runtimes import Mode, RuntimeName
from search.measuring.devices import device_model, driver_version
from search.measuring.runtimes import RUNTIMES, Subject
from search.measuring.runtimes.runtime import steps_of
from search.training.jobs import MeasureJob, MeasurementReport, Shape

_WARM_UP_ROUNDS = 2
_LEAST_ROUNDS = 10
_MOST_ROUNDS = 500
_LEAST_SECONDS = 0.03
_LONGEST_SECONDS = 1.5
_WANTED_HALF_WIDTH = 0.03
_SEED = 0
_CONFIDENCE = 0.95
_RIVALS_TIMINGS = 3
_AHEAD = 1.03
_CALLS_BEFORE_A_GRAPH = 3
LATENCY_CALLS = 1_000
"""Single calls that are timed where latency counts: of fewer, the slowest hundredth is chance."""

Clock = Literal["thread", "wall", "cuda"]

# Shorter than what a scheduler gives a process in one go: whoever else wants the core then spoils
# few timings, which a median does not see, instead of a part of each. Waking further threads or a
# GPU takes longer, and clocks that count it need longer timings.
_SHORTEST_TIMING_SECONDS: Mapping[Clock, float] = {"thread": 5e-4, "wall": 3e-3, "cuda": 3e-3}
_TRIES = 3


class Estimate(Spec):
    """A median over rounds, with an interval that holds the true median with 95% confidence.

    The interval lies between two order statistics: it assumes that rounds are independent, and
    nothing else about their distribution.
    """

    median: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half the interval's width, as a share of the median."""
        return (self.high - self.low) / 2 / self.median


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
    each are timed after that, in turn.

    Raises:
        ModelError: A model cannot be built, or its runtime cannot run it.
    """
    device = torch.device(device)
    threads_before = torch.get_num_threads()
    torch.set_num_threads(job.threads)
    try:
        for shape in job.shapes:
            record, seconds = _measure_shape(shape, job, device=device, alone=alone)
            yield MeasurementReport(
                trial=shape.trial,
                shape_key=shape.shape_key,
                device=record.device,
                samples_per_second=record.samples_per_second.median,
                ratio=record.ratio.median,
                latency_p50=record.latency_p50,
                latency_p99=record.latency_p99,
                seconds=seconds,
                record=record.model_dump(mode="json"),
            )
    finally:
        torch.set_num_threads(threads_before)


def estimate(values: Sequence[float]) -> Estimate:
    """Give the median of at least six values, and its 95% interval between order statistics.

    The k-th smallest and k-th largest of n values enclose the median unless fewer than k values
    fall on one side of it, the chance of which is binomial.

    Raises:
        ValueError: There are fewer than six values; not even their range holds the median with 95%.
    """
    ordered, count = sorted(values), len(values)
    outside, k = 0.0, 0
    while True:
        outside += math.comb(count, k) / 2**count
        if outside > (1 - _CONFIDENCE) / 2:
            break
        k += 1
    if k == 0:
        raise ValueError(f"{count} values give no 95% interval; at least 6 do")
    return Estimate(median=statistics.median(ordered), low=ordered[k - 1], high=ordered[-k])


@dataclass(frozen=True)
class _Contestant:
    """Something to time: how to time several calls of it, and how many are enough."""

    subject: Subject
    timer: "_Timer"
    repetitions: int

    def seconds_per_call(self) -> float:
        return self.timer(self.subject, self.repetitions) / self.repetitions


@dataclass(frozen=True)
class _Timer:
    """Times repeated calls by the clock that suits the device."""

    device: torch.device
    clock: Clock

    @classmethod
    def of(cls, device: torch.device, *, threads: int) -> "_Timer":
        if device.type == "cuda":
            return cls(device, "cuda")
        # A single thread's own CPU time does not count what other processes took from it.
        return cls(device, "thread" if threads == 1 else "wall")

    def __call__(self, subject: Subject, repetitions: int) -> float:
        if self.clock == "cuda":
            return self._by_events(subject, repetitions)
        now = time.thread_time if self.clock == "thread" else time.perf_counter
        started = now()
        subject.calls(repetitions)
        return now() - started

    def one_call(self, call: Callable[[], None]) -> float:
        """The time that passes until one call's answer is there, whatever else a clock counts."""
        started = time.perf_counter()
        call()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter() - started

    def _by_events(self, subject: Subject, repetitions: int) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize(self.device)
        begin.record()
        subject.calls(repetitions)
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1000


def _measure_shape(
    shape: Shape,
    job: MeasureJob,
    *,
    device: torch.device,
    alone: Callable[[], AbstractContextManager[None]],
) -> tuple[ThroughputRecord, float]:
    """The record, and how many seconds the device was held for it."""
    baseline = shape.model.dense_twin()
    timer = _Timer.of(device, threads=job.threads)
    load_average = os.getloadavg()[0]
    runtime = RUNTIMES[job.runtime]
    own = runtime.subjects(shape.model, job, device)
    rivals: Sequence[Subject] = (
        () if baseline == shape.model.unrounded else runtime.rivals(baseline, job, device)
    )
    for ready in (*own, *rivals):
        ready.call()
    with alone():
        started = time.monotonic()
        subject, model = _fastest(own, timer, ahead=_AHEAD)
        dense_subject, dense = _fastest(rivals, timer) if rivals else (subject, model)
        seconds = _rounds(model, dense)
        calls = _single_calls(model, dense) if job.latency else None
        held = time.monotonic() - started
    speeds = [job.batch_size / pair[0] for pair in seconds]
    others = [job.batch_size / pair[1] for pair in seconds]
    report = parameter_report(shape.model)
    record = ThroughputRecord(
        device=device_model(device),
        driver=driver_version(device),
        torch_version=torch.__version__,
        threads=job.threads,
        mode=job.mode,
        batch_size=job.batch_size,
        sequence_length=steps_of(job, shape.model),
        dtype=subject.dtype,
        evaluation_form=subject.evaluation_form,
        backend=subject.backend,
        dense_backend=dense_subject.backend,
        tf32=tf32_allowed() if device.type == "cuda" else None,
        huge_pages=os.environ.get("THP_MEM_ALLOC_ENABLE") == "1",
        clock=timer.clock,
        warm_up_rounds=_WARM_UP_ROUNDS,
        rounds=len(seconds),
        repetitions=model.repetitions,
        dense_repetitions=dense.repetitions,
        samples_per_second=estimate(speeds),
        dense_samples_per_second=estimate(others),
        ratio=_ratio(seconds),
        parameters=report.totals.parameters,
        dense_parameters=report.dense_twin.parameters,
        multiply_adds=report.totals.multiply_adds,
        dense_multiply_adds=report.dense_twin.multiply_adds,
        load_average=load_average,
        runtime=job.runtime,
        runtime_version=runtime.version(),
        compiler=runtime.compiler(),
        form=subject.form,
        **({} if calls is None else _latencies(*calls)),
    )
    return record, held


def _latencies(own: Sequence[float], dense: Sequence[float]) -> dict[str, Any]:
    """Of single calls of both, in seconds."""
    return {
        "calls": len(own),
        "latency_p50": float(np.quantile(own, 0.5)),
        "latency_p99": float(np.quantile(own, 0.99)),
        "dense_latency_p50": float(np.quantile(dense, 0.5)),
        "dense_latency_p99": float(np.quantile(dense, 0.99)),
    }


def _single_calls(model: _Contestant, dense: _Contestant) -> tuple[list[float], list[float]]:
    """Seconds of single calls of both, in turn; of a dense model, its own twice."""
    order = random.Random(_SEED)
    contestants = [model] if dense is model else [model, dense]
    found: dict[int, list[float]] = {id(contestant): [] for contestant in contestants}
    for _ in range(LATENCY_CALLS):
        order.shuffle(contestants)
        for contestant in contestants:
            found[id(contestant)].append(contestant.timer.one_call(contestant.subject.call))
    return found[id(model)], found[id(dense)]


def _rounds(model: _Contestant, dense: _Contestant) -> list[tuple[float, float]]:
    """Seconds per call of both, round by round; of a dense model, its own twice."""
    order = random.Random(_SEED)
    contestants = [model] if dense is model else [model, dense]
    for _ in range(_WARM_UP_ROUNDS):
        for contestant in contestants:
            contestant.seconds_per_call()
    seconds: list[tuple[float, float]] = []
    started = time.monotonic()
    while len(seconds) < _MOST_ROUNDS:
        order.shuffle(contestants)
        timed = {id(contestant): contestant.seconds_per_call() for contestant in contestants}
        seconds.append((timed[id(model)], timed[id(dense)]))
        elapsed = time.monotonic() - started
        if elapsed > _LONGEST_SECONDS and len(seconds) >= _LEAST_ROUNDS:
            break
        # To look costs as much as a short timing, and every look is a chance to stop too early.
        if elapsed < _LEAST_SECONDS or len(seconds) % _LEAST_ROUNDS:
            continue
        wanted = _ratio(seconds) if dense is not model else estimate([own for own, _ in seconds])
        if wanted.half_width < _WANTED_HALF_WIDTH:
            break
    return seconds


def _ratio(seconds: Sequence[tuple[float, float]]) -> Estimate:
    return estimate([dense / own for own, dense in seconds])


def _contestant(subject: Subject, timer: _Timer) -> _Contestant:
    """Find how many calls make one timing long enough; what is run for it warms up, too.

    The shortest of a few timings decides: by one that was disturbed, a model would be timed by
    fewer calls than its baseline, of which the first, after the other's, is the slowest.
    """
    subject.calls(_CALLS_BEFORE_A_GRAPH if timer.clock == "cuda" else 1)
    shortest = _SHORTEST_TIMING_SECONDS[timer.clock]
    repetitions = 1
    while (seconds := min(timer(subject, repetitions) for _ in range(_TRIES))) < shortest:
        missing = shortest / seconds if seconds > 0 else 10
        repetitions = math.ceil(repetitions * min(max(missing * 1.1, 1.5), 10))
    return _Contestant(subject, timer, repetitions)


def _fastest(
    rivals: Sequence[Subject], timer: _Timer, *, ahead: float = 1.0
) -> tuple[Subject, _Contestant]:
    """Whichever is faster here; the first one, where no other is so many times as fast."""
    contestants = [_contestant(rival, timer) for rival in rivals]
    if len(rivals) == 1:
        return rivals[0], contestants[0]
    timed = [
        min(contestant.seconds_per_call() for _ in range(_RIVALS_TIMINGS))
        for contestant in contestants
    ]
    fastest = timed.index(min(timed))
    if timed[fastest] * ahead >= timed[0]:
        fastest = 0
    return rivals[fastest], contestants[fastest]
