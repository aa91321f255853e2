"""A model's throughput, measured in turn with its dense baseline so that noise hits both alike."""

import math
import os
import random
import statistics
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from models.backends.vendor import tf32_allowed
from models.example_input import example_input
from models.fused import fuse
from models.kernels.choice import Backend, prefer
from models.linear import stored_matrices
from models.model import ModelSpec, after_step, parameter_groups
from models.report import parameter_report
from models.spec import Spec
from search.measuring.devices import device_model, driver_version
from search.training.jobs import MeasureJob, MeasurementReport, Shape

_WARM_UP_ROUNDS = 2
_LEAST_ROUNDS = 10
_MOST_ROUNDS = 500
_LEAST_SECONDS = 0.03
_LONGEST_SECONDS = 1.5
_WANTED_HALF_WIDTH = 0.03
_SEED = 0
_CONFIDENCE = 0.95
_RIVALS: tuple[Backend, ...] = ("cpp", "vendor")
_RIVALS_TIMINGS = 3
_CALLS_BEFORE_A_GRAPH = 3

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
    mode: Literal["inference", "training"] = Field(
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
        "graph, steps in CUDA graphs; torch, its single operations; empty in older records",
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
    measured by itself, on what it would run on anyway.

    Raises:
        SlotError: A model cannot be built.
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
    """Something to time: one call, how to time several of them, and how many are enough."""

    call: Callable[[], None]
    timer: "_Timer"
    repetitions: int

    def seconds_per_call(self) -> float:
        return self.timer(self.call, self.repetitions) / self.repetitions


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

    def __call__(self, call: Callable[[], None], repetitions: int) -> float:
        if self.clock == "cuda":
            return self._by_events(call, repetitions)
        now = time.thread_time if self.clock == "thread" else time.perf_counter
        started = now()
        for _ in range(repetitions):
            call()
        return now() - started

    def _by_events(self, call: Callable[[], None], repetitions: int) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize(self.device)
        begin.record()
        for _ in range(repetitions):
            call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1000


@dataclass(frozen=True)
class _Subject:
    """A model that is ready to be timed, and what is to be said about it."""

    call: Callable[[], None]
    backend: tuple[str, ...]
    evaluation_form: tuple[str, ...]
    dtype: str


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
    subject = _subject(shape.model, job, device)
    rivals = [] if baseline == shape.model.unrounded else _rivals(baseline, job, device)
    for ready in (subject, *rivals):
        ready.call()
    with alone():
        started = time.monotonic()
        model = _contestant(subject.call, timer)
        dense_subject, dense = _fastest(rivals, timer) if rivals else (subject, model)
        seconds = _rounds(model, dense)
        held = time.monotonic() - started
    own = [job.batch_size / pair[0] for pair in seconds]
    others = [job.batch_size / pair[1] for pair in seconds]
    report = parameter_report(shape.model)
    record = ThroughputRecord(
        device=device_model(device),
        driver=driver_version(device),
        torch_version=torch.__version__,
        threads=job.threads,
        mode=job.mode,
        batch_size=job.batch_size,
        sequence_length=_length(job, shape.model),
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
        samples_per_second=estimate(own),
        dense_samples_per_second=estimate(others),
        ratio=_ratio(seconds),
        parameters=report.totals.parameters,
        dense_parameters=report.dense_twin.parameters,
        multiply_adds=report.totals.multiply_adds,
        dense_multiply_adds=report.dense_twin.multiply_adds,
        load_average=load_average,
    )
    return record, held


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


def _contestant(call: Callable[[], None], timer: _Timer) -> _Contestant:
    """Find how many calls make one timing long enough; what is run for it warms up, too.

    The shortest of a few timings decides: by one that was disturbed, a model would be timed by
    fewer calls than its baseline, of which the first, after the other's, is the slowest.
    """
    for _ in range(_CALLS_BEFORE_A_GRAPH if timer.clock == "cuda" else 1):
        call()
    shortest = _SHORTEST_TIMING_SECONDS[timer.clock]
    repetitions = 1
    while (seconds := min(timer(call, repetitions) for _ in range(_TRIES))) < shortest:
        missing = shortest / seconds if seconds > 0 else 10
        repetitions = math.ceil(repetitions * min(max(missing * 1.1, 1.5), 10))
    return _Contestant(call, timer, repetitions)


def _rivals(spec: ModelSpec, job: MeasureJob, device: torch.device) -> list[_Subject]:
    """A dense model on what it would run on anyway, and on the vendor's kernels and ours."""
    rivals = [_subject(spec, job, device)]
    for backend in _RIVALS:
        with prefer(backend):
            subject = _subject(spec, job, device)
        if all(subject.backend != other.backend for other in rivals):
            rivals.append(replace(subject, call=_preferring(backend, subject.call)))
    return rivals


def _fastest(rivals: Sequence[_Subject], timer: _Timer) -> tuple[_Subject, _Contestant]:
    """Whichever is faster here."""
    contestants = [_contestant(rival.call, timer) for rival in rivals]
    if len(rivals) == 1:
        return rivals[0], contestants[0]
    timed = [
        min(contestant.seconds_per_call() for _ in range(_RIVALS_TIMINGS))
        for contestant in contestants
    ]
    fastest = timed.index(min(timed))
    return rivals[fastest], contestants[fastest]


def _preferring(backend: Backend, call: Callable[[], None]) -> Callable[[], None]:
    def preferring() -> None:
        with prefer(backend):
            call()

    return preferring


def _subject(spec: ModelSpec, job: MeasureJob, device: torch.device) -> _Subject:
    """A model that makes one forward pass when it is called, or one step of training."""
    network = spec.build(seed=_SEED).to(device)
    dtype = str(next(network.parameters()).dtype).removeprefix("torch.")
    generator = torch.Generator().manual_seed(_SEED)
    x = example_input(
        spec.signature, batch=job.batch_size, steps=_length(job, spec), generator=generator
    ).to(device)
    if job.mode == "training":
        module = network.train()
        call = _training_step(module, x, generator=generator)
    else:
        module = fuse(network)
        call = _forward(module, x)
    backends = module.backends(batch_size=job.batch_size)
    return _Subject(call, backends, _evaluation_form(module, backends), dtype)


def _length(job: MeasureJob, spec: ModelSpec) -> int:
    return job.sequence_length or spec.signature.sequence_length


def _forward(module: nn.Module, x: Tensor) -> Callable[[], None]:
    @torch.inference_mode()
    def call() -> None:
        module(x)

    return call


def _training_step(
    module: nn.Module, x: Tensor, *, generator: torch.Generator
) -> Callable[[], None]:
    # Steps so small that the numbers stay what they are at the start of a training: a model that
    # had learned the target by heart would compute with denormal gradients, which are slow.
    groups = [{**group} for group in parameter_groups(module, 1e-6)]
    optimizer = torch.optim.AdamW(groups, weight_decay=0, fused=False)
    with torch.no_grad():
        shape = module(x).shape
    target = torch.rand(shape, generator=generator).to(x.device)

    def call() -> None:
        optimizer.zero_grad(set_to_none=True)
        nn.functional.mse_loss(module(x), target).backward()  # pyright: ignore[reportUnknownMemberType] -- untyped
        optimizer.step()  # pyright: ignore[reportUnknownMemberType] -- untyped
        after_step(module)

    return call


def _evaluation_form(module: nn.Module, backends: Sequence[str]) -> tuple[str, ...]:
    """The forms' names; where no kernel of ours runs, those of what a loop in torch applies."""
    with torch.no_grad():
        forms = [part.form() for part in stored_matrices(module)]
        applied = forms if "cpp" in backends else [form.for_loop() for form in forms]
    return tuple(sorted({form.name for form in applied}))
